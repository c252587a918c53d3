"""Threads for what waits, so that an event loop does not."""

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
"""Calls that wait at a time. Those of listeners are short, so that more of them take turns."""

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
    """Runs a call in a thread and waits for it; one that is cancelled goes on there to its end."""
    return await start(call, *args, **kwargs)


async def whole(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The same for a call whose end is near: a task that is cancelled waits for it, so that what
    the call uses is free again."""
    running = start(call, *args, **kwargs)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise
