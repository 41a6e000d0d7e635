"""Running asynchronous work to its end, from a command, a notebook or a thread."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end; SIGTERM ends it as Ctrl-C does, with everything closed and nothing lost.

    A notebook has a loop of its own in this thread: beside one, the work runs in another thread.
    """
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    cancel: list[Callable[[], object]] = []

    async def can_be_ended() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        if task is not None:
            cancel.append(lambda: loop.call_soon_threadsafe(task.cancel))
            if threading.current_thread() is threading.main_thread():
                loop.add_signal_handler(signal.SIGTERM, task.cancel)
        return await work

    def whole() -> T:
        try:
            return asyncio.run(can_be_ended())
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None

    if _beside_a_loop():
        with ThreadPoolExecutor(1) as beside:
            future = beside.submit(whole)
            try:
                return future.result()
            except KeyboardInterrupt:
                for end in cancel if not future.done() else ():
                    end()
                raise
    before = signal.getsignal(signal.SIGTERM)
    try:
        return whole()
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _beside_a_loop() -> bool:
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
