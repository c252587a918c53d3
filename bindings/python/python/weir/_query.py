"""Driving a query: fetch what it needs, hand out what it has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

from . import _pool
from ._errors import QueryError
from ._weir import Buffer, Need, Page, Query

Data = bytes | bytearray | memoryview | str | Buffer
"""A page of JSON."""

Fetched = tuple[Data, bytes | str | None] | None
"""A page and what names the one after it (None: it was the last). None in place of both: the
function has handed in, finished or replaced the source itself; else it is BAD_OPTION."""

_LARGE = 256 << 10
"""Bytes above which a page is scanned beside the event loop."""


def _wanted(needs: list[Need]) -> list[Need]:
    return [need for need in needs if need.required] or needs


def pages(
    query: Query,
    fetch: Callable[[Need], Fetched] | None = None,
    *,
    max_items: int = 256,
    max_bytes: int = 1 << 20,
) -> Iterator[Page]:
    """The results of a query, page by page. `fetch` is asked for what it needs.

    Without `fetch` everything has to be handed in before; a query that needs more raises
    BAD_OPTION, and so does a `fetch` that gives and hands in nothing.
    """
    while True:
        step = query.next(max_items, max_bytes)
        if step is None:
            return
        if isinstance(step, Page):
            yield step
            continue
        if fetch is None:
            query._starved(step[0].source, False)
            return
        before = query._handed
        for need in _wanted(step):
            fetched = fetch(need)
            if fetched is not None:
                query.enqueue(need.source, *fetched)
        if query._handed == before:
            query._starved(step[0].source, True)


async def apages(
    query: Query,
    fetch: Callable[[Need], Awaitable[Fetched]],
    *,
    max_items: int = 256,
    max_bytes: int = 1 << 20,
) -> AsyncIterator[Page]:
    """The same with an asynchronous `fetch`, which is asked for all needs at a time."""
    while True:
        step = query.next(max_items, max_bytes)
        if step is None:
            return
        if isinstance(step, Page):
            yield step
            continue
        before = query._handed
        for need, fetched in zip(step, await _all([fetch(need) for need in step]), strict=True):
            if fetched is None:
                continue
            data, following = fetched
            try:
                if len(data) > _LARGE:
                    await _pool.whole(query.enqueue, need.source, data, following)
                else:
                    query.enqueue(need.source, data, following)
            except QueryError as error:
                # A page ahead for which there is no room; it is asked for again.
                if need.required or error.code != "OVER_BUDGET":
                    raise
        if query._handed == before:
            query._starved(step[0].source, True)


async def _all(asked: list[Awaitable[Fetched]]) -> list[Fetched]:
    """The results of all, in order; when one fails the others are ended first."""
    tasks = [asyncio.ensure_future(one) for one in asked]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
