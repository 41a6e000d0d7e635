"""What outputs are conditioned on: a set of prompts, prefixes or texts with gaps, with a hash.

    PromptSet.read(FILE) ──resolve(reader, template, length)──▶ Canvases ──▶ .spec, .prompt_of(i)

Rows (`rows`) hold a text or ids; a `Template` writes around texts (`template`, `chat`) and cuts
them at their gaps (`marks`); a `Canvas` (`canvas`) is what a model meets. No torch, no tokenizer
library: the tokenizer is passed in.
"""

from __future__ import annotations

from strop.prompts.canvas import Canvas, Canvases, Codec, PromptReader, resolve
from strop.prompts.chat import ChatTemplate
from strop.prompts.rows import Bos, Prompt, PromptSet, Shots, Template, escape

__all__ = [
    "Bos",
    "Canvas",
    "Canvases",
    "ChatTemplate",
    "Codec",
    "Prompt",
    "PromptReader",
    "PromptSet",
    "Shots",
    "Template",
    "escape",
    "resolve",
]
