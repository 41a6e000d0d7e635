"""What outputs are conditioned on: a set of prompts, prefixes or texts with gaps, with a hash.

    PromptSet.read(FILE) ──resolve(reader, template, length)──▶ Canvases ──▶ .spec, .prompt_of(i)

Rows (`rows`) hold a text or ids; a `Template` writes around texts (`template`, `chat`) and cuts
them at their gaps (`marks`); a `Canvas` (`canvas`) is what a model meets. No torch, no tokenizer
library: the tokenizer is passed in.

The names load on first use: importing the package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strop.registry import loader

if TYPE_CHECKING:
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

__getattr__ = loader(__name__)
