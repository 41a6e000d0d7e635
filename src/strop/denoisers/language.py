"""Denoisers of a language whose law is known: the exact predictive laws, or a known way off them.

With the settings of a model (`config.json`, or `load`) its law at a masked position is

    (1 - leak) ((1 - near) P(v | all visible) + near P(v | visible in its sentence)) + leak u(v)

where u is the law of a word at a random place, and P is the language's law after the less likely
half of every latent's values was made `narrow` times too rare.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from strop.checkpoints.checkpoint import Located
from strop.checkpoints.family import chosen_family
from strop.checkpoints.files import read_json_object
from strop.denoisers.base import Timeless, exact_spec
from strop.denoisers.device import upload
from strop.denoisers.load import Loading
from strop.denoisers.tokenizer import TextCodec
from strop.errors import UserError, unknown_name
from strop.language import Language
from strop.language.grammar import PRESETS
from strop.language.law import MASK, joined
from strop.language.reading import remember
from strop.records.record import Setting

SETTINGS = {
    "leak": Setting("the share of a word at a random place", 0.0),
    "near": Setting("the share of the law that sees its sentence alone", 0.0),
    "narrow": Setting("how many times too rare unlikely latents are", 1.0, 1.0, 1e12),
}


class LanguageDenoiser(Timeless):
    """log P(X_i = v | visible tokens) of a language.

    A hidden state holds the weights of the laws that a position can have, which are words and
    classes; `logits` adds them up to a law over the vocabulary.
    """

    def __init__(
        self,
        language: Language,
        *,
        source: str = "language",
        device: torch.device | str = "cpu",
        **settings: float,
    ) -> None:
        self.language, self.source, self.device = language, source, torch.device(device)
        remember(language)
        values = checked_settings(settings, source)
        self.leak, self.near = values["leak"], values["near"]
        self.believed = language if values["narrow"] == 1 else language.narrowed(values["narrow"])
        """The language that it takes its texts for."""
        self.length, self.mask_id = language.length, language.mask_id
        self.vocab_size = self.mask_id + 1
        self.codec = LanguageCodec(language)
        sha256 = language.grammar.sha256
        self.spec = exact_spec("language", sha256, self.length, self.mask_id, **values)
        position, law = language.features
        order = np.argsort(position, kind="stable")
        counts = np.bincount(position, minlength=self.length)
        # Features by position, the short lists filled up with one that has no weight.
        self._index = np.full((self.length, counts.max()), len(law))
        self._index[np.arange(counts.max()) < counts[:, None]] = order
        self._laws = upload(np.append(law, 0)[self._index], self.device)
        classes = list(language.grammar.classes.values())
        table = np.stack(classes) if classes else np.zeros((0, self.mask_id))
        self._classes = upload(table, self.device)
        noise = language.grammar.noise
        base = np.full(self.mask_id, (1 - self.leak) * noise / self.mask_id)
        if self.leak:
            base += self.leak * language.unigram
        self._base, self._share = upload(base, self.device), (1 - self.leak) * (1 - noise)

    @property
    def grammar(self) -> bytes:
        """Its file, which a run keeps for scoring the outputs; empty for a built-in one."""
        grammar = self.language.grammar
        return b"" if grammar.source in PRESETS else grammar.content

    def hidden(self, ids: Tensor, sigma: Tensor | None) -> Tensor:  # noqa: ARG002
        """Weights of the laws at every position, [B, L, laws]."""
        rows = np.full((len(ids), self.length), self.mask_id, np.int64)
        rows[:, : ids.shape[1]] = ids.cpu().numpy()  # waits: the law is computed by numpy
        weights = np.zeros(())
        if self.near < 1:
            weights = weights + (1 - self.near) * self.believed.weights(rows)
        if self.near > 0:
            weights = weights + self.near * self.believed.weights(rows, alone=True)
        padded = np.concatenate([weights, np.zeros((1, len(rows)))])
        gathered = padded[self._index[: ids.shape[1]]].transpose(2, 0, 1)
        return upload(np.ascontiguousarray(gathered), self.device)

    def logits(self, hidden: Tensor, sequence: Tensor, position: Tensor) -> Tensor:
        """Logarithms of the laws; the mask column is zero and SUBS rules it out."""
        weights = hidden[sequence, position]
        mixed = weights.new_zeros(len(weights), self.mask_id + len(self._classes))
        mixed.scatter_add_(1, self._laws[position], weights)
        laws = mixed[:, : self.mask_id]
        laws += mixed[:, self.mask_id :] @ self._classes
        out = weights.new_zeros(len(weights), self.vocab_size)
        torch.log(laws * self._share + self._base, out=out[:, : self.mask_id])
        return out


class LanguageCodec(TextCodec):
    """Words of a language and their ids."""

    def __init__(self, language: Language) -> None:
        from tokenizers import Tokenizer, models

        words = {word: k for k, word in enumerate(language.vocabulary)}
        tokenizer = Tokenizer(models.WordLevel(words, unk_token=MASK))
        super().__init__(tokenizer, language.grammar.sha256)
        self._language = language

    @property
    def opening(self) -> tuple[int, ...]:
        """Nothing stands before a text."""
        return ()

    def encode(self, text: str) -> list[int]:
        """The ids of a text; a word that the language does not have is an error."""
        return self._language.encode(text).tolist()

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of many texts."""
        return [self.encode(text) for text in texts]

    def decode(self, ids: Iterable[int], mask_id: int | None = None) -> str:  # noqa: ARG002
        """The text of ids."""
        words = self._language.vocabulary
        return joined([words[k] if k < len(words) else MASK for k in map(int, ids)])


def checked_settings(settings: Mapping[str, Any], where: object) -> dict[str, float]:
    """A value for every setting of a model."""
    for name in settings:
        if name not in SETTINGS:
            raise unknown_name("setting of a language", name, SETTINGS, where=str(where))
    return {
        name: float(setting.checked(settings.get(name, setting.default), f"{where}: {name!r}"))
        for name, setting in SETTINGS.items()
    }


def load_language(located: Located, loading: Loading) -> LanguageDenoiser:
    """The model of a directory whose config.json has the model type `language`."""
    folder = located.path if located.path.is_dir() else located.path.parent
    config = read_json_object(folder / "config.json")
    chosen_family("language", loading.family, folder)
    if loading.weights is not None:
        raise UserError(
            "A language has no weights to choose from.", where=located.source, fix="leave it out"
        )
    settings = {k: v for k, v in config.items() if k not in ("model_type", "language")}
    settings |= {k: v for k, v in loading.load.items() if k != "language"}
    name = str(loading.load.get("language", config.get("language", "even")))
    beside = folder / name
    language = Language.load(beside if beside.is_file() else name)
    return LanguageDenoiser(language, source=located.source, device=loading.device, **settings)
