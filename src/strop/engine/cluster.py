"""The Ray cluster that work may go to: joined where it is named, else one of this machine's own."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from strop.errors import UserError
from strop.runtime import source_path

STORE_BYTES = 128 * 2**20
"""Of a cluster that is started here: outputs are small, and memory is for models."""


def has_gpus(address: str | None) -> bool:
    """Whether actors that may be anywhere will be on GPUs; a cluster that is named is joined.

    One that is not there yet will be of this machine, and is not started for the question.
    """
    import ray

    if named(address) is None and not ray.is_initialized():
        import torch

        return torch.cuda.device_count() > 0
    join(address)
    return gpus_of(machines()) > 0


def gpus_of(nodes: list[Any]) -> int:
    """How many these machines have together."""
    return int(sum(node["Resources"].get("GPU", 0) for node in nodes))


def named(address: str | None) -> str | None:
    """The cluster that is meant: RAY_ADDRESS names one too, as inside a job that Ray started."""
    return address or os.environ.get("RAY_ADDRESS") or None


def join(address: str | None) -> None:
    """Be part of a cluster: the one that is named, or one of this machine's own."""
    import ray

    if ray.is_initialized():
        return
    address = named(address)
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # as later releases do
    with _own_signals():
        if address is not None:
            try:
                _knock(address)
                ray.init(address=address, **quiet)
            except OSError as error:
                raise UserError(
                    "There is no Ray cluster to join.",
                    where="`ray_address`",
                    got=f"{address}: {str(error).splitlines()[0][:200]}",
                    fix="start one on the head node, or leave `ray_address` and RAY_ADDRESS out",
                ) from error
            return
        # Ray's own is 15: beside any other work of the machine its actors would hardly move.
        os.environ.setdefault("RAY_worker_niceness", "0")
        before = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = source_path()  # for the workers that it starts
        try:
            # "local": never a cluster of somebody else who works on this machine
            own: dict[str, Any] = {"address": "local", "object_store_memory": STORE_BYTES}
            ray.init(**own, include_dashboard=False, **quiet)
        finally:
            if before is None:
                del os.environ["PYTHONPATH"]
            else:
                os.environ["PYTHONPATH"] = before


def _knock(address: str) -> None:
    """Whether anybody listens at host:port; Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if host and "/" not in host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=10).close()


@contextmanager
def _own_signals() -> Iterator[None]:
    """Ray ends the process at SIGTERM; ours keeps what is finished first."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def machines() -> list[Any]:
    """Machines that can work."""
    import ray

    return [
        node
        for node in ray.nodes()
        if node["Alive"] and any(node["Resources"].get(kind) for kind in ("CPU", "GPU"))
    ]
