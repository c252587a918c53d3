"""Properties of the query engine that the transcripts do not test: inputs, lifetimes, loops."""

from __future__ import annotations

import asyncio
import gc
import io
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
import weir


def items(query: weir.Query) -> list[bytes]:
    return [bytes(item) for page in weir.pages(query) for item in page]


def test_all_kinds_of_pages_give_equal_results() -> None:
    page = b'[{"n":1},{"n":2}]'
    ways: list[bytes | str | bytearray | memoryview]
    ways = [page, page.decode(), bytearray(page), memoryview(page)]
    for data in ways:
        query = weir.Query()
        query.add_source().enqueue(data)
        assert items(query) == [b'{"n":1}', b'{"n":2}']
    query = weir.Query()
    buffer = weir.Buffer(64)
    length = io.BytesIO(page).readinto(buffer)
    query.add_source().enqueue(buffer, length=length)
    assert items(query) == [b'{"n":1}', b'{"n":2}']


def test_a_buffer_is_transferred_once_and_only_without_views() -> None:
    query = weir.Query()
    source = query.add_source()
    buffer = weir.Buffer(4)
    assert len(buffer) == 4 and bytes(buffer) == bytes(4)
    with memoryview(buffer) as view:
        view[:3] = b"[1]"
        with pytest.raises(BufferError):
            source.enqueue(buffer, length=3)
    with pytest.raises(ValueError):
        source.enqueue(buffer, length=5)
    source.enqueue(buffer, length=3)
    assert len(buffer) == 0 and "transferred" in repr(buffer)
    with pytest.raises(BufferError):
        memoryview(buffer)
    with pytest.raises(ValueError):
        weir.Query().add_source().enqueue(buffer)
    assert items(query) == [b"1"]


REFUSED_BUFFER = """
import resource, weir
hard = resource.getrlimit(resource.RLIMIT_AS)[1]
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, hard))
try:
    weir.Buffer(3 << 30)
except MemoryError:
    raise SystemExit(0)
raise SystemExit(1)
"""


def test_a_buffer_without_memory_is_an_exception() -> None:
    subprocess.run([sys.executable, "-c", REFUSED_BUFFER], check=True, timeout=60)


def test_a_buffer_gets_its_memory_back_when_its_page_is_rejected() -> None:
    buffer = weir.Buffer(4)
    io.BytesIO(b"[1,2").readinto(buffer)
    query = weir.Query()
    source = query.add_source()
    with pytest.raises(weir.QueryError):
        source.enqueue(buffer)
    with memoryview(buffer) as view:
        assert bytes(view) == b"[1,2"
        view[2:] = b"] "
    source.enqueue(buffer, length=3)
    assert items(query) == [b"1"]


def test_bytes_are_not_copied_and_are_released() -> None:
    query = weir.Query()
    source = query.add_source()
    copied = bytearray(b"[1,2]")
    source.enqueue(copied, "next")
    copied[1:2] = b"9"
    page = b'["' + b"x" * 1_000_000 + b'"]'
    source.enqueue(page)
    assert query.buffered_bytes == len(page) + len(copied)
    first = query.next(2)
    assert isinstance(first, weir.Page) and [bytes(item) for item in first] == [b"1", b"2"]
    result = query.next()
    assert isinstance(result, weir.Page)
    assert bytes(result.buffers[0]) is not page
    address = memoryview(result.buffers[0])
    assert len(address) == len(page) and bytes(address) == page


def test_a_view_outlives_item_page_and_query() -> None:
    query = weir.Query(order="$.n")
    source = query.add_source(sorted=True)
    source.enqueue(bytearray(b'[{"n":1,"v":"x"}]'))
    page = query.next()
    assert isinstance(page, weir.Page)
    view = memoryview(page[0])
    part = page[0].find_raw("$.v")
    assert part is not None
    inner = memoryview(part)
    [(value, none)] = page.values("$.v", "$.w")
    assert value is not None and none is None
    del page, part, source, query
    gc.collect()
    assert bytes(value) == b'"x"' and value.readonly
    assert bytes(view) == b'{"n":1,"v":"x"}' and bytes(inner) == b'"x"' and view.readonly


def test_values_are_found_in_items() -> None:
    query = weir.Query()
    query.add_source("s").enqueue(b'[ {"a":{"b":[1,2]},"t":true,"u":"\\u0041"} ]')
    page = query.next()
    assert isinstance(page, weir.Page)
    item = page[0]
    assert [bytes(one) for one in page[:1]] == [bytes(item)] == [bytes(page[:: 1 << 62][0])]
    assert list(page[1:]) == []
    assert (item.source, item.index, item.page_number, item.constructed) == (0, 0, 0, False)
    inner = item.get("$.a")
    assert isinstance(inner, weir.Item) and inner.get("$.b[1]") == 2
    assert item.get("$.t") is True and item.get("$.u") == "A" and item.get("$.z", "d") == "d"
    assert item.json() == {"a": {"b": [1, 2]}, "t": True, "u": "A"} and item.text()[0] == "{"
    assert query.source_name(0) == b"s" and query.source_name(9) is None
    assert page.spans[0] == (0, 2, len(item)) and len(page) == 1
    assert bytes(memoryview(page))[2 : 2 + len(item)] == bytes(item)
    assert page.values() == [()]
    with pytest.raises(weir.WeirError, match="NOT_SINGULAR"):
        page.values("$.a", "$..a")
    with pytest.raises(weir.WeirError, match="TOO_COMPLEX: more than 64 paths"):
        page.values(*["$.a"] * 65)


def test_needs_are_fetched_until_the_end() -> None:
    pages: dict[bytes, dict[bytes | None, tuple[str, str | bytes | None]]] = {
        b"a": {None: ('[{"n":1},{"n":4}]', "a2"), b"a2": ('[{"n":6}]', None)},
        b"b": {None: ('[{"n":2}]', "b2"), b"b2": ("[]", b"b3"), b"b3": ('[{"n":5}]', None)},
    }
    requested = []

    def fetch(need: weir.Need) -> tuple[str, str | bytes | None]:
        requested.append((need.source.name, need.continuation))
        return pages[need.source.name][need.continuation]

    query = weir.Query(order="$.n")
    for name in pages:
        query.add_source(name, sorted=True)
    found = [item.get("$.n") for page in weir.pages(query, fetch, max_items=1) for item in page]
    assert found == [1, 2, 4, 5, 6] and len(requested) == 5


def test_a_fetch_that_enqueues_nothing_is_an_error() -> None:
    async def later(query: weir.Query) -> list[weir.Page]:
        async def nothing(need: weir.Need) -> None:
            return None

        return [page async for page in weir.apages(query, nothing)]

    without = "BAD_OPTION: a page of source north is needed; give `fetch`"
    empty = "BAD_OPTION: `fetch` enqueued nothing, and a page of source north is needed"
    runs: list[tuple[Callable[[weir.Query], object], str]] = [
        (lambda query: list(weir.pages(query)), without),
        (lambda query: list(weir.pages(query, lambda need: None)), empty),
        (lambda query: asyncio.run(later(query)), empty),
    ]
    for run, message in runs:
        query = weir.Query()
        source = query.add_source("north")
        with pytest.raises(weir.StoreError) as failed:
            run(query)
        assert str(failed.value) == message
        # The query is still usable.
        source.enqueue("[1,2]")
        assert [len(page) for page in weir.pages(query)] == [2]


def test_a_fetch_may_finish_its_source() -> None:
    def fetch(need: weir.Need) -> None:
        need.source.finish()

    query = weir.Query()
    query.add_source()
    assert list(weir.pages(query, fetch)) == []


def test_a_fetch_may_split_its_source() -> None:
    query = weir.Query(order="$.n")
    query.add_source("whole", sorted=True)

    def fetch(need: weir.Need) -> tuple[str, None] | None:
        if need.source.name == b"whole":
            parts = need.source.replace([{"name": name, "sorted": True} for name in ("l", "r")])
            assert [part.name for part in parts] == [b"l", b"r"] and parts[0] != parts[1]
            return None
        return ('[{"n":1},{"n":3}]' if need.source.name == b"l" else '[{"n":2}]', None)

    assert [i.get("$.n") for page in weir.pages(query, fetch) for i in page] == [1, 2, 3]


def test_needs_are_fetched_together() -> None:
    async def run() -> list[int]:
        together = 0
        most = 0

        async def fetch(need: weir.Need) -> tuple[bytes, None]:
            nonlocal together, most
            together += 1
            most = max(most, together)
            await asyncio.sleep(0)
            together -= 1
            pad = b" " * (300 << 10) if need.source.number == 0 else b""
            return b'[{"n":%d}]' % need.source.number + pad, None

        query = weir.Query(order="$.n desc")
        for _ in range(5):
            query.add_source(sorted=True)
        found = [i.get("$.n") async for page in weir.apages(query, fetch) for i in page]
        assert most == 5
        return found

    assert asyncio.run(run()) == [4, 3, 2, 1, 0]


def test_pages_ahead_that_exceed_the_budget_are_requested_again() -> None:
    fetched = []

    async def run() -> list[int]:
        async def fetch(need: weir.Need) -> tuple[bytes, bytes | None]:
            fetched.append(need.source.number)
            at = int(need.continuation or b"0")
            page = b"[%d]" % (10 * at + need.source.number)
            return page.ljust(30 if at == 0 else 60), b"%d" % (at + 1) if at < 3 else None

        budgets = {"buffer_bytes_max": 150, "page_bytes_hint": 1, "pages_ahead": 2}
        query = weir.Query(order="$", budgets=budgets)
        for _ in range(3):
            query.add_source(sorted=True)
        return [int(bytes(i)) async for page in weir.apages(query, fetch) for i in page]

    assert asyncio.run(run()) == [10 * at + source for at in range(4) for source in range(3)]
    assert len(fetched) > 4 * 3


def test_a_query_is_usable_after_its_task_is_cancelled() -> None:
    page = b"[" + b"1," * 4_000_000 + b"1]"

    async def run() -> None:
        async def fetch(need: weir.Need) -> tuple[bytes, None]:
            return page, None

        async def read() -> None:
            async for _ in weir.apages(query, fetch):
                raise AssertionError

        def is_busy() -> bool:
            try:
                query.explain()
            except weir.WeirError as error:
                assert error.code == "HANDLE_BUSY"
                return True
            return False

        query = weir.Query()
        query.add_source()
        task = asyncio.create_task(read())
        while not is_busy():
            if task.done():
                # The check was inside the call when the task started.
                with pytest.raises(weir.WeirError, match="^HANDLE_BUSY"):
                    task.result()
                task = asyncio.create_task(read())
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not is_busy()

    asyncio.run(run())


def test_a_fetch_that_fails_ends_the_others() -> None:
    ended = []

    async def run() -> None:
        async def fetch(need: weir.Need) -> tuple[bytes, None]:
            if need.source.number == 0:
                raise OSError("gone")
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(need.source.number)
            raise AssertionError

        query = weir.Query(order="$.n")
        for _ in range(3):
            query.add_source(sorted=True)
        async for _ in weir.apages(query, fetch):
            pass

    with pytest.raises(OSError, match="gone"):
        asyncio.run(run())
    assert sorted(ended) == [1, 2]


def test_another_query_resumes_at_a_token() -> None:
    def query(token: bytes | None = None) -> weir.Query:
        made = weir.Query(order="$.n", token=token)
        made.add_source("s", sorted=True, first="0")
        return made

    first = query()
    first.enqueue(0, '[{"n":1},{"n":2},{"n":3}]')
    page = first.next(2)
    assert isinstance(page, weir.Page) and len(page) == 2
    token = first.token()
    second = query(token)
    needs = second.next()
    assert isinstance(needs, list) and needs[0].continuation == b"0" and needs[0].required
    second.enqueue(needs[0].source, '[{"n":1},{"n":2},{"n":3}]')
    assert items(second) == [b'{"n":3}']
    with pytest.raises(weir.QueryError) as raised:
        query(token[:-1])
    assert raised.value.code.startswith("TOKEN_")
    with pytest.raises(weir.QueryError, match="NO_TOKEN"):
        weir.Query(order="$.n", mode="sort").token()


def test_errors_have_a_position() -> None:
    with pytest.raises(weir.QueryError) as text:
        weir.Query(order="$.a, $$")
    assert (text.value.code, text.value.field, text.value.offset) == ("SYNTAX", "order", 6)
    query = weir.Query()
    source = query.add_source("s")
    with pytest.raises(weir.QueryError) as page:
        source.enqueue("[1,}")
    place = page.value
    assert (place.source, place.source_name, place.page, place.offset) == (0, "s", 0, 3)
    source.enqueue("[1]")
    assert items(query) == [b"1"]
    with pytest.raises(weir.QueryError, match="UNKNOWN_SOURCE"):
        query.finish(9)
    with pytest.raises(weir.StoreError, match="BAD_OPTION"):
        weir.Query(mode="backwards")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="budget"):
        weir.Query(budgets={"patience": 1})


def test_a_query_serves_one_thread() -> None:
    page = "[" + ",".join('{"n":%d,"s":"%s"}' % (n, "x" * 50) for n in range(100_000)) + "]"
    query = weir.Query(where="@.n < 0")
    source = query.add_source()
    over = threading.Event()

    def fill() -> None:
        while not over.is_set():
            try:
                source.enqueue(page, "more")
                query.next()
            except weir.WeirError:
                pass

    threads = [threading.Thread(target=fill) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        with pytest.raises(weir.WeirError) as raised:
            while True:
                query.skipped
        assert (raised.value.code, raised.value.number) == ("HANDLE_BUSY", 605)
    finally:
        over.set()
        for thread in threads:
            thread.join()
