"""A tokenizer's chat template: the text that makes one message a conversation to be answered.

Templates are Jinja programs that others wrote. They run in Jinja's sandbox, with the options and
the few extra names that templates of the hub count on, except the date of today: a prompt that is
another one tomorrow is no value. A template that knows the switch `enable_thinking` gets it as off,
and whatever a template does, it may not leave a thinking block open: the response is the answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from strop.errors import UserError

if TYPE_CHECKING:
    from jinja2 import Template

ALONE = "chat_template.jinja"
CONFIG = "tokenizer_config.json"
KEY = "chat_template"
THINKING = "enable_thinking"
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
        text = _default(content.get(KEY))
        if text is None:
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
        given = {**self._off(), **(variables or {})}
        if open_answer and not given.get(THINKING):
            self._check_thought(given)
        text = self._run(messages, given, open_answer)
        if open_answer:
            return text
        last = messages[-1]["content"].strip()
        return text[: text.rindex(last) + len(last)] if last in text else text

    def _off(self) -> dict[str, Any]:
        """The thinking switch, for a template that has one."""
        return {THINKING: False} if THINKING in self.source else {}

    def _check_thought(self, variables: Mapping[str, Any]) -> None:
        """Refuse a template that lets the answer begin inside a thought, or with a made-up one.

        A short message stands for all, since a message may itself quote the marks of thoughts.
        """
        probe = self._run([{"role": "user", "content": _PROBE}], variables, True)
        tail = probe.rpartition(_PROBE)[2]
        if (found := _THOUGHT.search(tail)) is None:
            return
        raise UserError(
            "The chat template begins the answer with a thinking block.",
            where=self.where,
            got=repr(tail[found.start() :])[:120],
            expected="no thinking block, or an empty one",
            fix="use the model's template that answers at once, or write the conversation into "
            "the prompts and leave the template out",
        )

    def _run(
        self, messages: Sequence[Mapping[str, str]], variables: Mapping[str, Any], answer: bool
    ) -> str:
        try:
            return _compiled(self.source).render(
                **{"tools": None, "documents": None, **dict(self.tokens), **variables},
                messages=list(messages),
                add_generation_prompt=answer,
            )
        except Exception as error:  # the template is a program: it may fail in any way
            raise UserError(
                "The chat template fails.",
                where=self.where,
                got=f"{type(error).__name__}: {error}"[:200],
                expected="a template for one message of the user, which asks for no date",
                fix="write the conversation into the prompts and leave the template out",
            ) from error


@lru_cache(maxsize=8)
def _compiled(source: str) -> Template:
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """`generation` marks what a model wrote, for training; here its content is all."""

        tags = {"generation"}  # noqa: RUF012 as the base class has it

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    return environment.from_string(source)


def _to_json(value: Any, indent: int | None = None, **_: Any) -> str:
    # Jinja's own escapes what matters in HTML; a prompt is not a page.
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> NoReturn:
    raise ValueError(message)


def special_tokens(directory: str | Path) -> dict[str, str]:
    """`bos_token`, `eos_token`, ... with their texts, as the tokenizer's configuration has them."""
    return _tokens(_mapping(Path(directory) / CONFIG))


def _tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """Special tokens by name; they are texts, or objects with the text as `content`."""
    found = {}
    for name, value in config.items():
        text = value.get("content") if isinstance(value, Mapping) else value
        if name.endswith("_token") and isinstance(text, str):
            found[name] = text
    return found


def _default(value: Any) -> str | None:
    """Of several named templates, the one for conversations without tools."""
    if isinstance(value, list):
        named = {one.get("name"): one.get("template") for one in value if isinstance(one, Mapping)}
        value = named.get("default")
    return value if isinstance(value, str) else None


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


def _damaged(path: Path, got: object) -> UserError:
    return UserError(
        "A file of the tokenizer cannot be read.",
        where=path,
        got=str(got)[:160],
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
