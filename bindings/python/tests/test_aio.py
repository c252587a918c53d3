"""The asynchronous API: it does not block, ends when cancelled, and fails like the blocking API."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from hashlib import sha256
from pathlib import Path
from typing import Literal

import pytest
import weir
import weir.aio
from conftest import PROGRAMS


def test_writes_share_syncs(tmp_path: Path) -> None:
    async def run() -> None:
        async with await weir.aopen(tmp_path / "s") as store:
            topic = store.topic("t")
            assert await topic.ensure() and not await topic.ensure()
            verdicts = await asyncio.gather(*(topic.put(str(n), "v") for n in range(300)))
            assert sorted(v.offset or 0 for v in verdicts) == list(range(2, 302))
            # Far fewer syncs than writes, because the writes were in flight at the same time. On a
            # busy machine, the store may sync as fast as this thread writes.
            before, until = 0, time.monotonic() + 60
            while (syncs := store.blocking.stats()["syncs"]) - before >= 150:
                assert time.monotonic() < until
                before = syncs
                await asyncio.gather(*(topic.put(str(n), "v") for n in range(300)))
            assert (await topic.put_if("1", "w", [weir.Expect.key_absent()])).reason == "CONFLICT"
            assert (await topic.put("large", b"x" * (1 << 20))).valid
            assert [bool(v) for v in await topic.batch([weir.Put("a", "1"), weir.Delete("b")])] == [
                True,
                True,
            ]
            assert await topic.transaction([weir.Put("a", "2")])
            record = await topic.get("a")
            assert record is not None and record.value == b"2"
            assert len(await topic.keys()) == 302
            assert [info.name for info in await store.topics()] == ["t"]

    asyncio.run(run())


def test_more_listeners_than_threads_receive_every_record(tmp_path: Path) -> None:
    async def run() -> None:
        async with await weir.aopen(tmp_path / "s", durability="memory") as store:
            topic = store.topic("t")
            await topic.ensure()

            async def receive() -> list[int]:
                received: list[int] = []
                async for page in topic.follow_pages(after=1):
                    received.extend(record.offset for record in page)
                    if received[-1] == 4:
                        return received
                raise AssertionError

            tasks = [asyncio.create_task(receive()) for _ in range(50)]
            await asyncio.sleep(0)
            for n in range(3):
                await topic.append(str(n))
            assert await asyncio.gather(*tasks) == [[2, 3, 4]] * 50

    asyncio.run(run())


def test_a_listener_ends_when_cancelled_and_after_its_timeout(tmp_path: Path) -> None:
    async def run() -> None:
        async with await weir.aopen(tmp_path / "s", durability="memory") as store:
            topic = store.topic("t")
            await topic.ensure()

            async def receive() -> None:
                async for _ in topic.follow_pages():
                    pass

            task = asyncio.create_task(receive())
            await topic.put("k", "v")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert [len(page) async for page in topic.follow_pages(timeout=0.01)] == []
            assert [r.offset async for r in topic.records()] == [1, 2]
            assert [r.key async for r in topic.latest()] == [b"k"]
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(receive(), 0.05)

    asyncio.run(run())


def test_a_tail_returns_old_and_new_records_as_json(tmp_path: Path) -> None:
    async def run() -> None:
        async with await weir.aopen(tmp_path / "s", durability="memory") as store:
            topic = store.topic("t")
            await topic.ensure()
            await topic.put("old", {"n": 1})
            tail = topic.follow(after=1, timeout=30.0)
            assert (await anext(tail)).json() == {"n": 1}
            await topic.append([2])
            assert (await anext(tail)).json() == [2]
            assert [r.offset async for r in topic.follow("-1", timeout=0.0)] == [3]

    asyncio.run(run())


def test_members_of_groups_wait_for_work(tmp_path: Path) -> None:
    async def run() -> None:
        async with await weir.aopen(tmp_path / "s", durability="memory") as store:
            topic = store.topic("t")
            await topic.ensure()
            group = await topic.group("g", "keyed")
            waiting = asyncio.create_task(group.claim(timeout=None))
            await topic.put("k", "v")
            work = await waiting
            assert [one.record.key for one in work] == [b"k"]
            assert await group.ack(work) == [] and (await group.info()).lag == 0
            assert (await group.reset()).valid and (await group.info()).lag == 2
            assert [info.name for info in await topic.groups()] == ["g"]
            assert (await group.delete()).valid and await topic.groups() == []

    asyncio.run(run())


@pytest.mark.parametrize("mode", ["exclusive", "keyed", "shared"])
def test_records_of_a_cancelled_claim_are_returned_by_the_next_claim(
    mode: Literal["exclusive", "keyed", "shared"], tmp_path: Path
) -> None:
    async def run() -> None:
        async with await weir.aopen(tmp_path / "s", durability="memory") as store:
            topic = store.topic("t")
            await topic.ensure()
            group = await topic.group("g", mode)
            for value in range(0, 30, 3):
                claiming = await waiting_claim(group)
                # The loop is blocked here, so the claim has these records when it is cancelled.
                topic.blocking.batch([weir.Put("", str(value)), weir.Put("", str(value + 1))])
                claiming.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await claiming
                await topic.append(str(value + 2))
                claimed: list[int] = []
                while work := await group.claim(2):
                    claimed += [int(one.record.value) for one in work]
                    assert await group.ack(work) == []
                assert claimed == [value, value + 1, value + 2]
            assert (await group.info()).lag == 0

    asyncio.run(run())


def test_returned_records_precede_those_of_a_cancelled_claim(tmp_path: Path) -> None:
    async def run() -> None:
        async with await weir.aopen(tmp_path / "s", durability="memory") as store:
            topic = store.topic("t")
            await topic.ensure()
            group = await topic.group("g", "exclusive")
            await topic.append("0")
            (first,) = await group.claim(1)
            claiming = await waiting_claim(group)
            topic.blocking.append("1")
            claiming.cancel()
            with pytest.raises(asyncio.CancelledError):
                await claiming
            await group.nack([first])
            again = [one.record.value for one in await group.claim()]
            assert again == [b"0", b"1"]

    asyncio.run(run())


async def waiting_claim(group: weir.aio.Group) -> asyncio.Task[list[weir.Work]]:
    """Starts a claim that waits."""
    while True:
        claiming = asyncio.create_task(group.claim(timeout=None))
        while not claiming.done():
            if is_busy(group):
                return claiming
            await asyncio.sleep(0)
        # The check was inside the call when the claim started.
        with pytest.raises(weir.WeirError, match="^HANDLE_BUSY"):
            claiming.result()


def is_busy(group: weir.aio.Group) -> bool:
    """Whether a thread is in a call of the group."""
    try:
        group.blocking._take(0)
    except weir.WeirError:
        return True
    return False


def test_sessions_options_and_queries(tmp_path: Path) -> None:
    async def run() -> None:
        async with await weir.aopen(tmp_path / "s", durability="memory") as store:
            topic = store.topic("t")
            assert await topic.create(keys_max=1)
            session = await store.session(b"0123456789abcdef")
            puts = [("t", weir.Put("a", "1")), ("t", weir.Put("b", "1"))]
            assert [v.reason for v in await session.execute(puts)] == [None, "QUOTA"]
            assert await topic.alter(keys_max=None)
            await session.resume(2)
            assert [v.reason for v in await session.execute(puts[1:])] == ["QUOTA"]
            assert await session.next_nonce() == 3
            pages = [page async for page in store.query("t", select="$")]
            assert [bytes(item) for page in pages for item in page] == [b"1"]
            assert await topic.destroy()

    asyncio.run(run())


def test_a_query_that_follows_ends_at_its_limit(tmp_path: Path) -> None:
    async def run() -> None:
        async with await weir.aopen(tmp_path / "s", durability="memory") as store:
            topic = store.topic("t")
            await topic.ensure()

            async def read() -> list[bytes]:
                pages = store.query("t", follow=True, select="$.n", limit=2)
                return [bytes(item) async for page in pages for item in page]

            reading = asyncio.create_task(read())
            for n in range(3):
                assert await topic.put("k", {"n": n})
            assert await asyncio.wait_for(reading, 60) == [b"0", b"1"]

    asyncio.run(run())


def test_a_query_over_a_pattern_names_the_topic_of_each_result(tmp_path: Path) -> None:
    async def run() -> None:
        async with await weir.aopen(tmp_path / "s", durability="memory") as store:
            for name in ("orders.eu", "orders.us"):
                await store.topic(name).ensure()
                await store.topic(name).put("k", {"in": name})
            query = store.query("orders.*", select="$.in")
            assert query.topic(0) is None
            found = [(query.topic(i.source), i.json()) async for page in query for i in page]
            assert sorted(found) == [("orders.eu", "orders.eu"), ("orders.us", "orders.us")]
            assert query.blocking is not None
            closed = store.query("orders.*")
            await anext(closed)
            await closed.aclose()
            assert [page async for page in closed] == []

    asyncio.run(run())


def test_a_program_is_replaced_only_where_the_expected_one_is(tmp_path: Path) -> None:
    async def run() -> None:
        first, other = ((PROGRAMS / f"{name}.wasm").read_bytes() for name in ("nothing", "vanilla"))
        async with await weir.aopen(tmp_path / "s", durability="memory") as store:
            topic = store.topic("t")
            assert await topic.create(program=first)
            late = await topic.replace(other, expected=sha256(other).digest())
            assert late.reason == "CONFLICT"
            assert await topic.replace(other, expected=sha256(first).digest())
            assert await topic.replace(first)

    asyncio.run(run())


def test_several_tasks_wait_for_one_write(tmp_path: Path) -> None:
    async def run() -> None:
        async with await weir.aopen(tmp_path / "s") as store:
            topic = store.topic("t")
            await topic.ensure()
            for n in range(20):
                pending = topic.blocking.send([weir.Put("k", str(n))])
                both = asyncio.gather(weir.aio.settle(pending), weir.aio.settle(pending))
                first, second = await asyncio.wait_for(both, 60)
                assert first == second and first[0].valid

    asyncio.run(run())


@pytest.mark.parametrize("bad", [-1.0, float("nan")])
def test_a_timeout_that_is_not_a_time_is_an_error(bad: float, tmp_path: Path) -> None:
    async def run() -> None:
        async with await weir.aopen(tmp_path / "s", durability="memory") as store:
            topic = store.topic("t")
            await topic.ensure()
            group = await topic.group("g")
            listening, latest = topic.follow_pages(timeout=bad), topic.latest(timeout=bad)
            calls: list[Awaitable[object]] = [group.claim(timeout=bad)]
            calls += [anext(listening), anext(latest)]
            for call in calls:
                with pytest.raises(weir.StoreError, match="BAD_OPTION: timeout is"):
                    await asyncio.wait_for(call, 60)

    asyncio.run(run())


def test_errors_are_those_of_the_blocking_form(tmp_path: Path) -> None:
    async def run() -> None:
        store = await weir.aopen(tmp_path / "s", durability="memory")
        topic = store.topic("t")
        assert (await topic.put("k", "v")).reason == "NO_TOPIC"
        with pytest.raises(weir.RefusalError, match="TOO_LARGE"):
            await topic.put("k" * 100_000, "v")
        await store.close()
        with pytest.raises(weir.StoreError, match="CLOSED"):
            await topic.put("k", "v")

    asyncio.run(run())
