"""The same store behind a server."""

from __future__ import annotations

import asyncio

import pytest
import weir
from conftest import Server


def test_a_store_behind_a_server_is_used_alike(server: Server) -> None:
    with weir.connect(server.url, patience=30) as store:
        assert "server" in repr(store) and store.durability == "memory"
        topic = store.topic("orders")
        assert topic.ensure()
        assert topic.put("k", '{"n":1}').offset == 2
        absent = [weir.Expect.key_absent()]
        assert topic.put_if("k", "2", absent).detail == {"actual": 2}
        assert [bool(v) for v in topic.batch([weir.Put("l", "1"), weir.Delete("l")])] == [
            True,
            True,
        ]
        assert topic.transaction([weir.Put("a", "1"), weir.Put("b", "2")]).records == 2
        record = topic.get("k")
        assert record is not None and record.get("$.n") == 1
        assert [key for key, _ in topic.keys()] == [b"a", b"b", b"k"]
        assert [r.offset for r in topic.pages().records()] == [1, 2, 3, 4, 5, 6]
        listening = topic.listen(after=6, timeout=30)
        topic.append("later")
        assert next(listening)[0].value == b"later"
        assert [(r.key, r.replay) for r in topic.latest()] == [
            (b"a", True),
            (b"b", True),
            (b"k", True),
        ]
        group = topic.group("g")
        work = group.claim(100, 5)
        assert len(work) == 6 and group.ack(work) == [] and group.info().lag == 0
        session = store.session(bytes(range(16)))
        assert session.execute([("orders", weir.Put("s", "1"))])[0].valid
        assert session.next_nonce == 2
        assert [info.name for info in store.topics()] == ["orders"] and store.stats()["valid"] > 5
    with pytest.raises(weir.StoreError, match="CLOSED"):
        store.topics()


def test_event_loops_have_it_too(server: Server) -> None:
    async def run() -> None:
        async with await weir.aconnect(server.url) as store:
            topic = store.topic("t")
            await topic.ensure()
            await asyncio.gather(*(topic.put(str(n), "v") for n in range(100)))
            assert len([r async for r in topic.records()]) == 101

    asyncio.run(run())


def test_nobody_there_is_an_error_in_time() -> None:
    with pytest.raises(weir.ClientError) as nobody:
        weir.connect("weir://127.0.0.1:1", connect_timeout=0.2)
    assert nobody.value.code == "UNREACHABLE"
    with pytest.raises(weir.ClientError, match="BAD_ADDRESS"):
        weir.connect("http://localhost")
