"""A tokenizer's chat template: the text that makes one message a conversation to be answered.

Templates are Jinja programs that others wrote. They run in Jinja's sandbox, in a process of their
own with limits of time and memory (`chat_child.py`), with the options and the few extra names that
templates of the hub count on, except the date of today: a prompt that is another one tomorrow is no
value. What the user says must be in what comes out. A template that knows the switch
`enable_thinking` gets it as off, and whatever a template does, it may not leave a thinking block
open: the response is the answer.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import selectors
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from strop.errors import UserError

ALONE = "chat_template.jinja"
CONFIG = "tokenizer_config.json"
KEY = "chat_template"
THINKING = "enable_thinking"
SECONDS, MEMORY, CHARACTERS = 20.0, 2**30, 2**22
"""What a template may take for one conversation: time, address space, and what it writes."""
_PROBE = "strop asks"
# The marks of Qwen and most others, of Mistral, and of Gemma 4: open, and not closed at once.
_THOUGHT = re.compile(
    r"<think>(?!\s*</think>)|\[THINK\](?!\s*\[/THINK\])|<\|channel>thought(?!\s*<channel\|>)"
)


@dataclass(frozen=True)
class ChatTemplate:
    """The template's text and the special tokens that it writes."""

    source: str
    tokens: tuple[tuple[str, str], ...] = ()
    """`bos_token`, `eos_token`, ... with their texts."""
    where: str = field(default="the chat template", compare=False)
    """The file it was read from, for messages."""

    @classmethod
    def beside(cls, directory: str | Path | None) -> ChatTemplate:
        """The template beside a tokenizer: a file of its own, else the one in its configuration."""
        if directory is None:
            raise _none_there(None)
        alone, config = Path(directory) / ALONE, Path(directory) / CONFIG
        content = _mapping(config)
        tokens = tuple(sorted(_tokens(content).items()))
        if (text := _read(alone)) is not None:
            return cls(text, tokens, where=str(alone))
        text = content.get(KEY)
        if isinstance(text, list):  # of several named ones, that for conversations without tools
            named = {
                entry.get("name"): entry.get("template")
                for entry in text
                if isinstance(entry, Mapping)
            }
            text = named.get("default")
        if not isinstance(text, str):
            raise _none_there(Path(directory))
        return cls(text, tokens, where=str(config))

    def render(self, text: str, variables: Mapping[str, Any] | None = None) -> str:
        """One message of the user, and the beginning of the answer to it.

        `variables` are further names for the template, such as `enable_thinking` (off, if nothing
        is said) or `date_string`.
        """
        return self.converse([{"role": "user", "content": text}], variables=variables)

    def converse(
        self,
        messages: Sequence[Mapping[str, str]],
        *,
        open_answer: bool = True,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """Messages with their roles, and the beginning of the answer to the last one.

        Without `open_answer` the last message is an answer's own beginning: it is left open.
        """
        # Off, in a template that has the switch.
        values = {**({THINKING: False} if THINKING in self.source else {}), **(variables or {})}
        if open_answer and not values.get(THINKING):
            self._check_thought(values)
        text = self._run(messages, values, open_answer)
        for message in messages:
            if message["role"] == "user" and not _holds(text, message["content"]):
                raise self._dropped(message["content"], text)
        if open_answer:
            return text
        last = messages[-1]["content"].strip()
        return text[: text.rindex(last) + len(last)] if last in text else text

    def _check_thought(self, variables: Mapping[str, Any]) -> None:
        """Refuse a template that lets the answer begin inside a thought, or with a made-up one.

        A short message stands for all, since a message may itself quote the marks of thoughts.
        """
        probe = self._run([{"role": "user", "content": _PROBE}], variables, True)
        tail = probe.rpartition(_PROBE)[2]
        if (thought := _THOUGHT.search(tail)) is None:
            return
        raise UserError(
            "The chat template begins the answer with a thinking block.",
            where=self.where,
            got=repr(tail[thought.start() :])[:120],
            expected="no thinking block, or an empty one",
            fix="use the model's template that answers at once, or write the conversation into "
            "the prompts and leave the template out",
        )

    def _run(
        self, messages: Sequence[Mapping[str, str]], variables: Mapping[str, Any], answer: bool
    ) -> str:
        names = {"tools": None, "documents": None, **dict(self.tokens), **variables}
        names |= {
            "messages": [dict(message) for message in messages],
            "add_generation_prompt": answer,
        }
        try:
            return _RENDERER.render(self.source, names)
        except _Failed as error:
            raise UserError(
                "The chat template fails.",
                where=self.where,
                got=str(error),
                expected="a template for one message of the user, which does not use the date",
                fix="write the conversation into the prompts and leave the template out",
            ) from None

    def _dropped(self, message: str, text: str) -> UserError:
        return UserError(
            "The chat template leaves out what the user says.",
            where=self.where,
            got=f"{repr(text)[:100]} for the message {repr(message)[:60]}",
            expected="the message in the conversation",
            fix="use the model's own template, or write the conversation into the prompts and "
            "leave the template out",
        )


def _holds(text: str, message: str) -> bool:
    """Whether a conversation has the message: as it is, as JSON, or with other white space."""
    within = "".join(text.split())
    forms = (message, json.dumps(message, ensure_ascii=False)[1:-1])
    return any("".join(form.split()) in within for form in forms)


class _Failed(Exception):
    """A template that did not come to its end, and why."""


class _Renderer:
    """The process that runs templates, started when the first one comes."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def render(self, source: str, names: Mapping[str, Any]) -> str:
        request = json.dumps({"source": source, "names": names}).encode() + b"\n"
        with self._lock:
            child = self._running()
            try:
                answer = _exchange(child, request)
            except BaseException:  # an interrupt too: half an answer must not be read as the next
                self._end()
                raise
        if "error" in answer:
            raise _Failed(answer["error"])
        return answer["text"]

    def _running(self) -> subprocess.Popen[bytes]:
        if self._owner != os.getpid():  # a fork has its parent's pipes, which are not its own
            self._child = None
        if self._child is None or self._child.poll() is not None:
            limits = json.dumps([sys.path, MEMORY, SECONDS, CHARACTERS])
            program = str(Path(__file__).with_name("chat_child.py"))
            self._child = subprocess.Popen(
                [sys.executable, "-I", "-S", program, limits],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            self._owner = os.getpid()
            atexit.register(self._end)
        return self._child

    def _end(self) -> None:
        if self._child is None or self._owner != os.getpid():
            return
        self._child.kill()
        self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        self._child = None


def _exchange(child: subprocess.Popen[bytes], request: bytes) -> dict[str, str]:
    """The answer to one request, or why there is none."""
    assert child.stdin is not None
    assert child.stdout is not None
    until, heard = time.monotonic() + SECONDS, bytearray()
    try:
        child.stdin.write(request)
        child.stdin.flush()
        with selectors.DefaultSelector() as selector:
            selector.register(child.stdout, selectors.EVENT_READ)
            while not heard.endswith(b"\n"):
                if not selector.select(max(0.0, until - time.monotonic())):
                    raise _Failed(f"it does not end within {SECONDS:g} seconds")
                piece = os.read(child.stdout.fileno(), 2**16)
                if not piece:
                    raise _Failed("its process ended, most likely for lack of memory")
                heard += piece
    except OSError as error:
        raise _Failed(f"its process ended: {error}") from None
    return json.loads(heard)


_RENDERER = _Renderer()


def special_tokens(directory: str | Path) -> dict[str, str]:
    """`bos_token`, `eos_token`, ... with their texts, as the tokenizer's configuration has them."""
    return _tokens(_mapping(Path(directory) / CONFIG))


def _tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """Special tokens by name; they are texts, or objects with the text as `content`."""
    tokens = {}
    for name, value in config.items():
        text = value.get("content") if isinstance(value, Mapping) else value
        if name.endswith("_token") and isinstance(text, str):
            tokens[name] = text
    return tokens


def _mapping(path: Path) -> Mapping[str, Any]:
    text = _read(path)
    try:
        content = json.loads(text) if text is not None else {}
    except (ValueError, RecursionError) as error:
        raise _damaged(path, error) from None
    if not isinstance(content, Mapping):
        raise _damaged(path, type(content).__name__)
    return content


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise _damaged(path, error) from None
    except OSError as error:
        raise _damaged(path, error.strerror or error) from error


def _damaged(path: Path, reason: object) -> UserError:
    return UserError(
        "A file of the tokenizer cannot be read.",
        where=path,
        got=str(reason)[:160],
        fix="download the tokenizer's files again",
    )


def _none_there(directory: Path | None) -> UserError:
    return UserError(
        "The tokenizer has no chat template.",
        where=directory,
        expected=f"{ALONE}, or {KEY!r} in {CONFIG}, beside the tokenizer",
        fix=f"copy {CONFIG} (and {ALONE}) of the instruct model there, "
        "or leave `chat` out: a base model continues plain text",
    )
