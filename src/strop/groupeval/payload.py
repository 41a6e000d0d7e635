"""What the judge reads: texts as JSON strings under opaque ids, between markers they cannot hold.

Texts are untrusted. A text can hold anything: the markers, the boundary, chat control tokens, a
reply that looks like ours, orders to the judge. None of it can change the payload's structure:

- each text is one JSON string on one line; quotes, line breaks and all unprintable characters are
  escaped, so no text ends its own string or line;
- `<` is escaped, so no control token of a chat template (`<|im_end|>`, `</s>`) stands there
  literally, and neither do `[INST]`, `[SYSTEM_PROMPT]` or any capitals in brackets;
- a boundary that the text itself spells is escaped, so every literal one is ours;
- the markers carry a code that is the hash of the texts, checked to be in none of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from string import Template

from strop.groupeval.profile import Profile, canonical, sha256

Messages = list[dict[str, str]]

CODE_DIGITS = 12
CONTROL = re.compile(r"\[(?=/?[A-Z][A-Z_]*\])")
"""The bracket of `[INST]`, `[/INST]`, `[SYSTEM_PROMPT]`, `[TOOL_CALLS]` and whatever else chat
templates make of capitals in brackets."""


def preprocess(text: str, profile: Profile) -> str:
    """The text as it is judged: one leading sentinel goes, later ones become boundaries."""
    return profile.boundary.join(documents(text, profile))


def documents(text: str, profile: Profile) -> list[str]:
    """The parts of a text between its sentinels, one leading sentinel left out."""
    return text.removeprefix(profile.sentinel).split(profile.sentinel)


def encode(text: str, profile: Profile) -> str:
    """The preprocessed text as a JSON string; decoded, it is `preprocess(text)` exactly."""
    own = re.compile(re.escape(profile.boundary))
    parts = [_escaped(document, own) for document in documents(text, profile)]
    return '"' + profile.boundary.join(parts) + '"'


def _escaped(text: str, own_boundary: re.Pattern[str]) -> str:
    text = json.dumps(text, ensure_ascii=False)[1:-1]
    # After json.dumps a backslash in the text is doubled, so these escapes cannot be confused
    # with anything that the text holds.
    text = own_boundary.sub(lambda match: _code_point(match[0][0]) + match[0][1:], text)
    text = CONTROL.sub(lambda match: _code_point(match[0]), text)
    return "".join(c if c.isprintable() and c != "<" else _code_point(c) for c in text)


def _code_point(character: str) -> str:
    r"""`\uXXXX`, twice for what lies beyond 16 bits."""
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def messages(
    profile: Profile, ids: Sequence[str], texts: Sequence[str], task: str | None = None
) -> Messages:
    """The whole conversation that is sent: nothing but the profile, the ids and the texts."""
    lines = [
        f'{{"id": {json.dumps(name)}, "text": {encode(text, profile)}}}'
        for name, text in zip(ids, texts, strict=True)
    ]
    if task is not None:
        lines.insert(0, f'{{"task": {encode(task, profile)}}}')
    data = "\n".join(lines)
    user = Template(profile.user).substitute(
        count=len(texts), code=_code(data), data=data, ids=", ".join(ids)
    )
    return [{"role": "system", "content": profile.system}, {"role": "user", "content": user}]


def _code(data: str) -> str:
    """A code that is not in the data: a text would have to hold a hash of itself."""
    code = sha256(data)[:CODE_DIGITS]
    while code in data:
        code = sha256(code + data)[:CODE_DIGITS]
    return code


def prompt_hash(conversation: Messages) -> str:
    """SHA-256 of what is sent."""
    return sha256(canonical(conversation))
