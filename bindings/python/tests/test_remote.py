"""A store at a server."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Literal

import pytest
import weir
from conftest import Server


@pytest.mark.parametrize("latest", [False, True])
def test_a_record_of_an_interrupted_read_is_returned_next(latest: bool, server: Server) -> None:
    class Interrupted(Exception):
        pass

    def append(_number: int, _frame: object) -> None:
        with weir.connect(server.url) as other:
            other.topic("t").put("k", "x")
            other.topic("t").get("none")
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, append)
    try:
        with weir.connect(server.url) as store:
            topic = store.topic("t")
            topic.ensure()
            reader = topic.follow_pages(timeout=10)
            current = topic.latest(timeout=10)
            received: list[int] = []

            def read() -> list[int]:
                if latest:
                    return [next(current).offset]
                return [record.offset for record in reader.next_page(10) or ()]

            for offset in range(2, 12):
                timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
                with pytest.raises(Interrupted):
                    # On a busy machine, the signal may arrive before the read begins.
                    timer.start()
                    read()
                timer.join()
                assert latest or reader.position <= offset
                received += read()
            assert received == list(range(2, 12))
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_store_at_a_server_has_the_same_interface(server: Server) -> None:
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
        listening = topic.follow_pages(after=6, timeout=30)
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


CONSISTENCIES: tuple[Literal["local", "leader", "linear"], ...] = ("local", "leader", "linear")


def test_a_single_server_reads_the_same_with_every_consistency(server: Server) -> None:
    with weir.connect(server.url) as store:
        topic = store.topic("t")
        topic.ensure()
        topic.put("k", "v")
        for consistency in CONSISTENCIES:
            with store.with_consistency(consistency) as reads:
                found = reads.topic("t").get("k")
                assert found is not None and found.text() == "v"
                assert [item.text() for page in reads.query("t") for item in page] == ["v"]
            assert reads.closed and not store.closed
        with pytest.raises(weir.StoreError, match='BAD_OPTION.*"nearest"'):
            store.with_consistency("nearest")  # type: ignore[arg-type]
        reads = store.with_consistency("linear")
    with pytest.raises(weir.StoreError, match="CLOSED"):
        reads.topics()


def test_event_loops_use_a_store_at_a_server(server: Server) -> None:
    async def run() -> None:
        async with await weir.aconnect(server.url) as store:
            topic = store.topic("t")
            await topic.ensure()
            await asyncio.gather(*(topic.put(str(n), "v") for n in range(100)))
            assert len([r async for r in topic.records()]) == 101

    asyncio.run(run())


def test_an_unreachable_server_is_an_error_after_the_timeout() -> None:
    with pytest.raises(weir.ClientError) as failure:
        weir.connect("weir://127.0.0.1:1", connect_timeout=0.2)
    assert failure.value.code == "UNREACHABLE"
    with pytest.raises(weir.ClientError, match="BAD_ADDRESS"):
        weir.connect("http://localhost")


WAITING_CALL = """
import signal, sys, threading, time, weir
# A process that was started in the background ignores SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)
store = weir.connect(sys.argv[1], patience=60)
topic = store.topic("t")
topic.put("k", "v")
call = sys.argv[2]
print("connected", flush=True)
sys.stdin.readline()
# Another thread runs only after the call has released the interpreter.
sys.setswitchinterval(1000)
calls = threading.Event()
def report():
    calls.wait()
    print("waits", flush=True)
threading.Thread(target=report, daemon=True).start()
begun = time.monotonic()
try:
    calls.set()
    eval(call)
except KeyboardInterrupt:
    print("interrupted", time.monotonic() - begun, flush=True)
    import os
    os._exit(7)
"""


@pytest.mark.parametrize(
    "call",
    [
        'topic.get("k")',
        "topic.info()",
        "list(topic.keys())",
        "list(topic.pages())",
        "list(topic.latest())",
        'topic.put("k", "w")',
        "topic.ensure()",
        "store.topics()",
        "store.sync()",
        'list(store.query("t"))',
        'topic.group("g").claim(1, 50)',
        'store.session(bytes(range(16))).execute([("t", weir.Put("s", "1"))])',
    ],
)
def test_ctrl_c_ends_a_call_that_waits_for_a_server(server: Server, call: str) -> None:
    with weir.connect(server.url) as store:
        store.topic("t").ensure()
    child = subprocess.Popen(
        [sys.executable, "-c", WAITING_CALL, server.url, call],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None and child.stdout is not None
    try:
        assert child.stdout.readline() == "connected\n"
        # The server is stopped and sends nothing more.
        server.process.send_signal(signal.SIGSTOP)
        _, status = os.waitpid(server.process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.stdout.readline() == "waits\n"
        os.kill(child.pid, signal.SIGINT)
        words = child.stdout.readline().split()
        assert words[0] == "interrupted"
        # The patience is 60 seconds; the expected time is a tenth of a second.
        assert float(words[1]) < 20
        assert child.wait() == 7
    finally:
        server.process.send_signal(signal.SIGCONT)
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()


def test_a_write_is_received_and_then_committed(server: Server) -> None:
    with weir.connect(server.url, received=True) as store:
        store.topic("orders").ensure()
        puts = [("orders", weir.Put("k", str(n))) for n in range(3)]
        for pending in (store.send(puts), store.session(bytes([7] * 16)).send(puts)):
            assert pending.wait_received(60)
            assert all(pending.wait()) and pending.wait_received(0)

    async def send_and_settle() -> None:
        async with await weir.aconnect(server.url, received=True) as store:
            pending = await store.send(puts)
            await weir.aio.received(pending)
            assert all(await weir.aio.settle(pending))
            for _ in range(20):
                pending = await store.send(puts)
                both = asyncio.gather(weir.aio.received(pending), weir.aio.settle(pending))
                _, verdicts = await asyncio.wait_for(both, 60)
                assert all(verdicts)

    asyncio.run(send_and_settle())


def test_writes_for_which_the_queue_has_no_room_wait_in_threads(server: Server) -> None:
    async def run() -> None:
        async with await weir.aconnect(server.url, patience=60) as store:
            topic = store.topic("t")
            await topic.ensure()
            server.process.send_signal(signal.SIGSTOP)
            try:
                # More than the queue holds.
                value = b"x" * 500_000
                writes = [asyncio.ensure_future(topic.put(str(n), value)) for n in range(40)]
                await asyncio.sleep(0)
            finally:
                server.process.send_signal(signal.SIGCONT)
            assert all(await asyncio.gather(*writes))

    asyncio.run(run())


def test_verdicts_arrive_after_their_session_was_dropped(server: Server) -> None:
    with weir.connect(server.url) as store:
        store.topic("t").ensure()
        session = store.session(bytes([7] * 16))
        assert session.next_nonce == 1
        server.process.send_signal(signal.SIGSTOP)
        try:
            os.waitpid(server.process.pid, os.WUNTRACED)
            pending = session.send([("t", weir.Put("k", "v"))])
            del session
            assert not pending.done
        finally:
            server.process.send_signal(signal.SIGCONT)
        assert pending.wait(60)[0].valid


def test_verdicts_arrive_after_their_store_was_dropped(server: Server) -> None:
    store = weir.connect(server.url)
    topic = store.topic("t")
    topic.ensure()
    server.process.send_signal(signal.SIGSTOP)
    try:
        os.waitpid(server.process.pid, os.WUNTRACED)
        all_pending = [
            store.send([("t", weir.Put("k", "v"))]),
            topic.send([weir.Put("k", "w")]),
        ]
        del store, topic
        assert not any(pending.done for pending in all_pending)
    finally:
        server.process.send_signal(signal.SIGCONT)
    assert all(pending.wait(60)[0].valid for pending in all_pending)


def test_a_session_is_closed_with_its_store(server: Server) -> None:
    puts = [("t", weir.Put("k", "v"))]
    with weir.connect(server.url) as store:
        store.topic("t").ensure()
        session = store.session(bytes([7] * 16))
        assert session.execute(puts)[0].valid
    uses: list[Callable[[], object]] = [
        lambda: session.execute(puts),
        lambda: session.next_nonce,
        lambda: session.resume(1),
    ]
    for use in uses:
        with pytest.raises(weir.StoreError, match="CLOSED"):
            use()


def test_other_threads_run_while_a_dropped_store_waits_for_its_answers(server: Server) -> None:
    store = weir.connect(server.url)
    store.topic("t").ensure()
    begins = threading.Event()
    events: list[str] = []

    def resume() -> None:
        begins.wait()
        events.append("resumed")
        server.process.send_signal(signal.SIGCONT)

    thread = threading.Thread(target=resume)
    thread.start()
    before = sys.getswitchinterval()
    server.process.send_signal(signal.SIGSTOP)
    try:
        os.waitpid(server.process.pid, os.WUNTRACED)
        store.send([("t", weir.Put("k", "v"))])
        # The other thread runs only after the drop has released the interpreter.
        sys.setswitchinterval(1000)
        begins.set()
        del store
        events.append("dropped")
    finally:
        sys.setswitchinterval(before)
        begins.set()
        thread.join()
    assert events == ["resumed", "dropped"]


def test_a_forked_process_leaves_the_connection_of_its_parent_open(server: Server) -> None:
    with weir.connect(server.url, patience=60) as store:
        store.topic("t").ensure()
        server.process.send_signal(signal.SIGSTOP)
        try:
            os.waitpid(server.process.pid, os.WUNTRACED)
            pending = store.send([("t", weir.Put("k", "v"))])
            child = os.fork()
            if child == 0:
                try:
                    store.close()
                finally:
                    os._exit(0)
            os.waitpid(child, 0)
        finally:
            server.process.send_signal(signal.SIGCONT)
        assert pending.wait(60)[0].valid
