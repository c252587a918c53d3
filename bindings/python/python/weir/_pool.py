"""Threads for blocking calls, so that an event loop does not block."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

THREADS_MAX = 32
"""Largest number of concurrent calls. Listeners make short calls, so there can be more of them."""

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None


def _get() -> ThreadPoolExecutor:
    global _pool
    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="weir")
        return _pool


def start(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
    """Runs a call in a thread."""
    loop = asyncio.get_running_loop()
    return loop.run_in_executor(_get(), functools.partial(call, *args, **kwargs))


async def run(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Runs a call in a thread and waits for it. If the task is cancelled, the call continues."""
    return await start(call, *args, **kwargs)


async def run_to_completion(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Runs a short call in a thread. A cancelled task waits for the call, so that the objects
    of the call are free again."""
    running = start(call, *args, **kwargs)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise
