"""A model behind a server: what it is called, and nothing of its insides.

Neither its weights nor its tokenizer are known. Its address and name stand for the weights; which
fingerprint the server gives with its replies is kept in the journal of every cell, and one that
changes ends the run. Texts are what it makes. Their ids, for entropy, repetition and diversity, are
those of GPT-2's tokenizer, which loses nothing: a prompt comes back from its ids as it was.
"""

from __future__ import annotations

import hashlib
from typing import Any

import torch

from strop.bounds import MOST_LENGTH
from strop.denoisers.base import in_one_line
from strop.denoisers.tokenizer import TextCodec
from strop.errors import UserError
from strop.served.address import ServerAddress
from strop.spec import CheckpointSpec

FAMILY = "served"
DEFAULT_LENGTH = 256
"""The most tokens of a reply where nothing is said."""


class ServedModel:
    """What a server makes of a prompt."""

    mask_id = None
    device = torch.device("cpu")
    length = MOST_LENGTH
    default_length = DEFAULT_LENGTH
    __repr__ = in_one_line

    def __init__(self, address: ServerAddress) -> None:
        self.address, self.source = address, str(address)
        self.codec = TextCodec.gpt2()
        self.vocab_size = self.codec.vocab_size
        self.spec = CheckpointSpec(
            family=FAMILY,
            sha256=hashlib.sha256(self.source.encode()).hexdigest(),
            weights="unknown",
            shape={"vocab_size": self.vocab_size},
            network_dtype="unknown",
            normalisation_dtype="unknown",
        )


def load_served(source: str, **given: Any) -> ServedModel:
    """The model at `server:URL#MODEL`; what is said of weights has no meaning for it."""
    for name, value in given.items():
        if value not in (None, "auto") and value != {}:
            raise UserError(
                "A served model is loaded by its server.",
                where=f"`{name}`",
                got=value,
                fix=f"leave `{name}` out; tell it to whoever starts the server",
            )
    return ServedModel(ServerAddress.parse(source))
