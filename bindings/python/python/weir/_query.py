"""Loops over the results of a query, which fetch the pages that it needs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

from . import _pool
from ._errors import QueryError
from ._weir import Buffer, Need, Page, Query

Data = bytes | bytearray | memoryview | str | Buffer
"""A page of JSON."""

Fetched = tuple[Data, bytes | str | None] | None
"""A page and the name of the next page (None: the page is the last). None instead of both: the
function has enqueued a page, or finished or replaced the source itself. Otherwise: BAD_OPTION."""

_LARGE = 256 << 10
"""Size in bytes above which a page is scanned in another thread."""


def _required(needs: list[Need]) -> list[Need]:
    return [need for need in needs if need.required] or needs


def pages(
    query: Query,
    fetch: Callable[[Need], Fetched] | None = None,
    *,
    max_items: int = 256,
    max_bytes: int = 1 << 20,
) -> Iterator[Page]:
    """The results of a query, page by page. Calls `fetch` for each page that the query needs.

    Without `fetch`, all pages must be enqueued before. A query that needs more pages raises
    BAD_OPTION. It also raises BAD_OPTION if `fetch` returns None and has enqueued nothing.
    """
    while True:
        step = query.next(max_items, max_bytes)
        if step is None:
            return
        if isinstance(step, Page):
            yield step
            continue
        if fetch is None:
            query._missing_page_error(step[0].source, False)
            return
        before = query._advanced
        for need in _required(step):
            fetched = fetch(need)
            if fetched is not None:
                query.enqueue(need.source, *fetched)
        if query._advanced == before:
            query._missing_page_error(step[0].source, True)


async def apages(
    query: Query,
    fetch: Callable[[Need], Awaitable[Fetched]],
    *,
    max_items: int = 256,
    max_bytes: int = 1 << 20,
) -> AsyncIterator[Page]:
    """Like `pages`, with an asynchronous `fetch`, which is called for all needed pages at once."""
    while True:
        step = query.next(max_items, max_bytes)
        if step is None:
            return
        if isinstance(step, Page):
            yield step
            continue
        before = query._advanced
        for need, fetched in zip(step, await _all([fetch(need) for need in step]), strict=True):
            if fetched is None:
                continue
            data, next_name = fetched
            try:
                if len(data) > _LARGE:
                    await _pool.run_to_completion(query.enqueue, need.source, data, next_name)
                else:
                    query.enqueue(need.source, data, next_name)
            except QueryError as error:
                # The query has no room for a page ahead, and requests it again later.
                if need.required or error.code != "OVER_BUDGET":
                    raise
        if query._advanced == before:
            query._missing_page_error(step[0].source, True)


async def _all(awaitables: list[Awaitable[Fetched]]) -> list[Fetched]:
    """The results of all tasks, in order. If one fails, the others are cancelled first."""
    tasks = [asyncio.ensure_future(one) for one in awaitables]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
