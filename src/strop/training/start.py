"""Beginning a run with the weights of a checkpoint instead of new ones."""

from __future__ import annotations

from typing import Any

from strop.denoisers.dit import DiT
from strop.denoisers.load import load_model
from strop.denoisers.tokenizer import TextCodec
from strop.errors import UserError
from strop.training.model import BothWays, Diffusion, Trainable


def begin_with(module: Trainable, source: str, codec: TextCodec) -> str:
    """Fill a new module with the weights of `source`; returns their SHA-256.

    The checkpoint must be of the run's family, shape and tokenizer. Its optimiser is not taken
    over: checkpoints do not have it, and a run after one whose rate has fallen wants a new one.
    """
    model = load_model(source, device="cpu", dtype="float32")
    family = {Diffusion: "mdlm", BothWays: "llada"}.get(type(module), "ar")
    if model.spec.family != family:
        raise _unfit("family", source, model.spec.family, family)
    if model.codec is None or model.codec.to_json() != codec.to_json():
        raise _unfit(
            "tokenizer",
            source,
            "none" if model.codec is None else f"one of {model.codec.vocab_size:,} tokens",
            f"the corpus's own, of {codec.vocab_size:,} tokens",
            fix="set data.tokenizer to the checkpoint's directory, or start another run without it",
        )
    network: Any = model.network  # pyright: ignore[reportAttributeAccessIssue]
    # What sizes of weights do not show: a network with other heads would take them and be wrong.
    theirs, mine = _unseen(network), _unseen(module.network)
    if theirs != mine:
        raise _unfit("shape", source, _told(theirs), _told(mine))
    weights = network.state_dict()
    ours = {name: tuple(value.shape) for name, value in module.network.state_dict().items()}
    for name in sorted({*ours, *weights}):
        theirs = tuple(weights[name].shape) if name in weights else None
        if ours.get(name) != theirs:
            raise _unfit(f"shape ({name})", source, theirs, ours.get(name))
    module.network.load_state_dict(weights)
    return model.spec.sha256


def _unseen(network: Any) -> dict[str, Any]:
    if isinstance(network, DiT):
        shape = network.shape
        names = ("n_heads", "time_conditioning", "mask_id")
        return {name: getattr(shape, name) for name in names}
    names = ("model_type", "hidden_act", "num_attention_heads", "num_key_value_heads")
    return {name: getattr(network.config, name, None) for name in names}


def _told(facts: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in facts.items())


def _unfit(
    what: str,
    source: str,
    got: object,
    expected: object,
    fix: str = "make the configuration's model fit the checkpoint, or choose another",
) -> UserError:
    return UserError(
        f"The run cannot begin with this checkpoint: its {what} is not the run's.",
        where=f"TrainSpec.start: {source}",
        got="nothing" if got is None else got,
        expected="nothing" if expected is None else expected,
        fix=fix,
    )
