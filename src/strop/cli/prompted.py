"""Prompts at the command line: what the flags ask for, and an output with what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

from strop.errors import UserError, unknown_name, whole_number
from strop.prompts import Bos, Canvases, PromptSet

if TYPE_CHECKING:
    from strop.denoisers import Model

SHOWN = 120
"""Characters of what stands before a response, where not all is wanted."""


@dataclass(frozen=True)
class Asked:
    """The flags about prompts."""

    prompts: Path | None
    per_prompt: int | None
    chat: bool
    shots: Path | None
    bos: str

    def check(self, n: int | None) -> None:
        """What can be seen before a model is loaded, which may be large or far away."""
        if self.bos not in get_args(Bos):
            raise unknown_name("choice", self.bos, get_args(Bos), where="--bos")
        if self.per_prompt is not None:
            whole_number("per_prompt", self.per_prompt, 1, 2**32)
            if n is not None:
                raise UserError(
                    "There are two numbers of outputs.",
                    where="--per-prompt",
                    got=f"-n {n} and --per-prompt {self.per_prompt}",
                    fix="leave out one of them",
                )
        if self.prompts is not None:
            PromptSet.read(self.prompts)
            return
        alone = {"--per-prompt": self.per_prompt, "--chat": self.chat, "--shots": self.shots}
        for flag, value in alone.items():
            if value:
                raise UserError(
                    f"{flag} is for prompts, and there are none.", where=flag, fix="add --prompts"
                )

    def canvases(self, model: Model, length: int | None) -> Canvases | None:
        """The prompts as the model meets them."""
        if self.prompts is None:
            return None
        from strop.denoisers.prompting import canvases_of

        return canvases_of(
            model,
            self.prompts,
            length=length,
            chat=self.chat,
            shots=self.shots,
            bos=cast(Bos, self.bos),
        )

    def flags(self) -> dict[str, Any]:
        """To repeat in another command; None is not said."""
        return {
            "--prompts": self.prompts,
            "--per-prompt": self.per_prompt,
            "--chat": self.chat or None,
            "--shots": self.shots,
            "--bos": None if self.bos == "tokenizer" else self.bos,
        }
