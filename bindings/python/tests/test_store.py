"""Stores in this process: writing, reading, listening, groups, sessions, errors."""

from __future__ import annotations

import copy
import json
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import weir
from conftest import PROGRAMS


def test_values_are_read_as_they_were_written(topic: weir.Topic) -> None:
    verdict = topic.put("4711", '{"state":"open"}', meta=b"m")
    assert verdict and verdict.valid and verdict.effect == "VALID"
    assert (verdict.offset, verdict.records, verdict.reason, verdict.detail) == (2, 1, None, None)
    record = topic.get(b"4711")
    assert record is not None
    assert (record.offset, record.kind, record.key, record.meta) == (2, "PUT", b"4711", b"m")
    assert record.value == bytes(record) == bytes(memoryview(record)) == b'{"state":"open"}'
    assert record.intention == verdict.intention and record.final_ and not record.transaction
    assert abs(record.time_ms / 1000 - time.time()) < 3600
    assert topic.get("absent") is None and topic.at(99) is None
    again = topic.at(2)
    assert again is not None and again.text() == '{"state":"open"}'


def test_an_integer_is_a_position(topic: weir.Topic) -> None:
    for value in ("a", "b"):
        topic.append(value)
    info = topic.info()
    assert info is not None
    last = info.last
    for position in (last, str(last), -1, "-1"):
        assert [record.value for record in topic.records(position)] == [b"b"]
    for bad in (True, 1.5):
        with pytest.raises(TypeError, match="a position is a str or an int"):
            topic.records(bad)  # type: ignore[arg-type]


def test_every_buffer_is_a_value(topic: weir.Topic) -> None:
    view = memoryview(b"xvx")[1:2]
    values: list[bytes | str | bytearray | memoryview] = [b"v", "v", bytearray(b"v"), view]
    for value in values:
        topic.put("k", value).check()
        found = topic.get("k")
        assert found is not None and found.value == b"v"
    with pytest.raises(TypeError, match="not int"):
        topic.put("k", 1)  # type: ignore[arg-type]


def test_a_failed_condition_is_a_verdict(topic: weir.Topic) -> None:
    first = topic.put("k", "1")
    assert first.offset is not None
    seen = weir.Expect.key_offset(first.offset)
    assert topic.put_if("k", "2", [seen])
    late = topic.put_if("k", "3", [seen])
    assert not late and (late.effect, late.reason) == ("INVALID", "CONFLICT")
    assert late.detail == {"actual": 3} and late.offset is None
    with pytest.raises(weir.VerdictError) as raised:
        late.check()
    assert raised.value.code == "CONFLICT" and raised.value.number == late.number
    assert topic.put_if("new", "1", [weir.Expect.key_absent(), weir.Expect.key_present("k")])


def test_a_batch_is_independent_and_a_transaction_is_not(topic: weir.Topic) -> None:
    absent = [weir.Expect.key_absent()]
    puts = [weir.Put("a", "1", expect=absent), weir.Put("a", "2", expect=absent)]
    verdicts = topic.batch([*puts, weir.Delete("b")])
    assert [bool(verdict) for verdict in verdicts] == [True, False, True]
    both = topic.transaction([weir.Put("c", "1"), weir.Delete("a")])
    assert both and both.records == 2
    none = topic.transaction(
        [weir.Put("d", "1"), weir.Put("c", "2")], expect=[weir.Expect.key_absent("c")]
    )
    assert none.reason == "CONFLICT" and topic.get("d") is None
    with pytest.raises(weir.RefusalError):
        topic.transaction([weir.Put("d", "1", expect=absent)])


def test_keys_are_in_order_and_by_prefix(topic: weir.Topic) -> None:
    topic.batch([weir.Put(f"k{n:04}", str(n)) for n in range(2500)])
    keys = list(topic.keys())
    assert len(keys) == 2500 and keys == sorted(keys) and keys[0] == (b"k0000", 2)
    assert [key for key, _ in topic.keys("k000", after="k0007")] == [b"k0008", b"k0009"]
    assert len(list(topic.keys(limit=7))) == 7


def test_pages_hold_all_records_in_order(topic: weir.Topic) -> None:
    topic.batch([weir.Put(str(n), b"x" * 1000) for n in range(500)])
    records = [record for page in topic.pages() for record in page]
    assert [record.offset for record in records] == list(range(1, 502))
    assert [r.offset for r in topic.pages(after=499).records()] == [500, 501]
    assert [r.offset for r in topic.pages(last=1).records()] == [501]
    assert [r.offset for r in topic.pages("-1").records()] == [501]
    assert [r.offset for r in topic.records(position="500")] == [500, 501]
    assert list(topic.pages(end=True)) == []
    page = next(topic.pages(after=1))
    assert page[0].offset == 2 == page.first and page[-1].offset == page.last
    assert len(page) == len(list(page)) and len(memoryview(page)) > 1000
    with pytest.raises(IndexError):
        page[len(page)]
    assert [record.offset for record in page[1:4]] == [3, 4, 5]
    assert [record.offset for record in page[2::-2]] == [4, 2] and list(page[3:3]) == []
    with pytest.raises(weir.StoreError, match="BAD_OPTION"):
        topic.pages(after=1, last=1)
    with pytest.raises(weir.StoreError, match="BAD_OPTION"):
        topic.pages("5", last=1)
    with pytest.raises(weir.StoreError, match="soon is not a position"):
        topic.pages("soon")


def test_a_view_outlives_record_page_topic_and_store(tmp_path: Path) -> None:
    store = weir.open(tmp_path / "s", durability="memory")
    topic = store.topic("t")
    topic.ensure()
    topic.put("k", b"value" * 1000)
    page = topic.pages(last=1).next_page()
    assert page is not None
    views = [memoryview(page[0]), memoryview(page)]
    found = topic.get("k")
    assert found is not None
    views.append(memoryview(found))
    store.close()
    del page, found, topic, store
    assert bytes(views[0]) == bytes(views[2]) == b"value" * 1000
    assert b"value" * 1000 in bytes(views[1])
    assert all(view.readonly for view in views)


def test_a_listener_receives_new_records(topic: weir.Topic) -> None:
    received: list[int] = []
    listening = topic.follow_pages(timeout=30)

    def receive() -> None:
        for page in listening:
            received.extend(record.offset for record in page)
            if received[-1] == 6:
                return

    thread = threading.Thread(target=receive)
    thread.start()
    for n in range(5):
        topic.append(str(n))
    thread.join()
    assert received == [2, 3, 4, 5, 6]
    offsets = [r.offset for r in topic.follow_pages(start=True, timeout=0).records()]
    assert offsets == [1, 2, 3, 4, 5, 6]


def test_a_listener_may_wait_for_its_topic(store: weir.Store) -> None:
    later = store.topic("later")
    assert later.follow_pages(start=True).next_page(0.01) is None
    with pytest.raises(weir.WeirError) as raised:
        later.pages()
    assert raised.value.code == "TOPIC_UNKNOWN"


def test_latest_values_precede_new_records(topic: weir.Topic) -> None:
    for key, value in [("b", "1"), ("a", "1"), ("b", "2")]:
        topic.put(key, value)
    latest = topic.latest()
    assert [(r.key, r.value, r.replay) for r in latest] == [(b"a", b"1", True), (b"b", b"2", True)]
    topic.put("c", "3")
    assert [(r.key, r.replay) for r in latest] == [(b"c", False)]


def test_a_wait_ends_by_a_signal(topic: weir.Topic) -> None:
    def raises(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, raises)
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(0.05, lambda: signal.pthread_kill(main, signal.SIGUSR1))
    try:
        with pytest.raises(KeyboardInterrupt):
            # On a busy machine, the signal may arrive before the wait begins.
            timer.start()
            topic.follow_pages().next_page(None)
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)


def test_groups_share_records(topic: weir.Topic) -> None:
    topic.batch([weir.Put(str(n), str(n)) for n in range(4)])
    one = topic.group("workers", member="one")
    two = topic.group("workers", member="two")
    first = one.claim(2)
    rest = two.claim(10)
    assert [work.record.key for work in first + rest] == [b"0", b"1", b"2", b"3"]
    assert one.ack(first) == [] and two.nack(rest[:1], reason="later") == []
    again = one.claim(10, timeout=5)
    assert [(work.record.key, work.attempts) for work in again] == [(b"2", 2)]
    assert two.extend(rest[1:], 60) == [] and one.ack(again) == [] and two.ack(rest[1:]) == []
    info = one.info()
    assert (info.lag, info.leased, info.mode, info.redeliveries) == (0, 0, "shared", 1)
    assert [group.name for group in topic.groups()] == ["workers"]
    assert one.delete()
    with pytest.raises(weir.WeirError, match="GROUP_UNKNOWN"):
        one.claim()


def test_an_exclusive_group_has_one_owner(topic: weir.Topic) -> None:
    topic.put("k", "1")
    one = topic.group("tail", "exclusive", member="one")
    work = one.claim()
    assert len(work) == 1
    two = topic.group("tail", "exclusive", member="two")
    assert two.claim(timeout=0.01) == []
    one.ack(work)
    one.leave()
    topic.put("k", "2")
    assert [work.record.value for work in two.claim(timeout=5)] == [b"2"]
    with pytest.raises(weir.WeirError, match="GROUP_MODE: group tail is exclusive, not keyed"):
        topic.group("tail", "keyed")


def test_errors_of_options_name_what_an_option_accepts(
    store: weir.Store, topic: weir.Topic, tmp_path: Path
) -> None:
    def fails(text: str, call: Callable[[], object]) -> None:
        with pytest.raises(weir.WeirError) as failed:
            call()
        assert text in str(failed.value)

    words = {
        "mode": "sequential, arrival, round_robin, merge, sort",
        "level": "none, structural, strict",
        "strings": "scalar, utf16",
        "view": "log, latest",
    }
    for name, accepted in words.items():
        options: dict[str, Any] = {name: "turns"}
        text = f'{name} cannot be "turns"; it accepts {accepted}'
        fails(text, lambda: store.query("orders", **options))
    group: Any = topic.group
    fails('mode cannot be "turns"; it accepts shared, keyed', lambda: group("g", "turns"))
    kinds = 'kinds cannot be "put"; it accepts '
    fails(kinds, lambda: store.query("orders", kinds=["put"]))
    other: Any = "always"
    fails(
        'durability cannot be "always"; it accepts group, each, interval, memory',
        lambda: weir.open(tmp_path / "other", durability=other),
    )
    fails("there is no topic nowhere", lambda: store.topic("nowhere").group("g"))
    fails("set `attempts` and `dead_letters` together", lambda: topic.group("g", attempts=3))


def test_a_session_executes_once(store: weir.Store, topic: weir.Topic) -> None:
    session = store.session(b"0123456789abcdef")
    assert session.client == b"0123456789abcdef" and session.next_nonce == 1
    first = session.execute([("orders", weir.Put("k", "1")), ("orders", weir.Put("k", "2"))])
    assert session.next_nonce == 3
    session.resume(1)
    again = session.execute([("orders", weir.Put("k", "1")), ("orders", weir.Put("k", "2"))])
    assert [v.offset for v in again] == [v.offset for v in first] == [2, 3]
    assert all(v.replayed for v in again) and not any(v.replayed for v in first)
    with pytest.raises(weir.StoreError, match="16 bytes"):
        store.session(b"short")


def test_sent_intentions_get_verdicts_later(store: weir.Store, topic: weir.Topic) -> None:
    many = [topic.send([weir.Put(str(n), "x")]) for n in range(100)]
    assert [pending.wait(30)[0].offset for pending in many] == list(range(2, 102))
    assert many[0].done and many[0].wait() == many[0].wait()
    called = threading.Event()
    pending = store.send([("orders", weir.Delete("1"))])
    pending.notify(lambda event: event.set(), called)
    assert called.wait(30) and pending.done


def test_threads_share_a_store(topic: weir.Topic) -> None:
    def write(first: int) -> None:
        for n in range(first, first + 50):
            topic.put(str(n), str(n)).check()

    threads = [threading.Thread(target=write, args=(n * 50,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(topic.keys())) == 200


def test_a_reader_serves_one_thread(topic: weir.Topic) -> None:
    reader = topic.follow_pages()
    begun = threading.Event()
    over = threading.Event()

    def wait() -> None:
        begun.set()
        while not over.is_set():
            try:
                reader.next_page(10)
            except weir.WeirError as error:
                # The other thread was inside the call for a moment.
                assert error.code == "HANDLE_BUSY"

    thread = threading.Thread(target=wait)
    thread.start()
    begun.wait()
    try:
        with pytest.raises(weir.WeirError, match="^HANDLE_BUSY"):
            # The other thread is almost always in its wait.
            until = time.monotonic() + 60
            while time.monotonic() < until:
                reader.position
    finally:
        over.set()
        topic.append("x")
        thread.join()


def test_calls_of_a_closed_store_raise_closed(tmp_path: Path) -> None:
    store = weir.open(tmp_path / "s")
    topic = store.topic("t")
    topic.ensure()
    topic.put("k", "v")
    reader, latest, keys = topic.follow_pages(), topic.latest(), topic.keys()
    group, session, query = topic.group("g"), store.session(bytes(range(16))), store.query("t")
    store.close()
    store.close()
    assert store.closed and "closed" in repr(store)
    assert query.explain() and session.client == bytes(range(16))
    uses: list[Callable[[], object]] = [
        lambda: store.topic("t"),
        lambda: store.topics(),
        lambda: topic.put("k", "v"),
        lambda: topic.get("k"),
        lambda: topic.keys(),
        lambda: topic.pages(),
        lambda: topic.latest(),
        lambda: topic.info(),
        lambda: topic.send([weir.Put("k", "v")]).wait(),
        lambda: next(latest),
        lambda: next(keys),
        lambda: group.claim(),
        lambda: group.info(),
        lambda: session.next_nonce,
        lambda: session.resume(1),
        lambda: session.send([("t", weir.Put("k", "v"))]),
        lambda: query.next(),
    ]
    for use in uses:
        with pytest.raises(weir.StoreError) as raised:
            use()
        assert raised.value.code == "CLOSED" and raised.value.advice
    with pytest.raises(weir.StoreError, match="CLOSED"):
        reader.next_page(0)
    with weir.open(tmp_path / "s", create=False) as again:
        assert [info.name for info in again.topics()] == ["t"]


USE_IN_FORKED_CHILD = """
import os, sys, weir
store = weir.open(sys.argv[1], durability="memory", program="parent")
topic = store.topic("t")
topic.ensure()
reader, latest, group = topic.follow_pages(start=True), topic.latest(), topic.group("g")
session = store.session(bytes(range(16)))
query = store.query("t")
keys = topic.keys()
pending = store.topic("none").send([weir.Put("k", "v")])
puts = [("t", weir.Put("k", "child"))]
uses = [
    lambda: store.topics(),
    lambda: store.batch(puts),
    lambda: topic.put("k", "child"),
    lambda: topic.send([weir.Put("k", "child")]),
    lambda: topic.get("k"),
    lambda: reader.next_page(),
    lambda: next(latest),
    lambda: group.claim(),
    lambda: session.execute(puts),
    lambda: query.next(),
    lambda: next(keys),
    lambda: pending.wait(1),
    lambda: pending.wait_received(1),
    lambda: pending.done,
    lambda: pending.notify(print, None),
    lambda: pending.notify_received(print, None),
]

def rejected():
    for number, use in enumerate(uses):
        try:
            use()
        except weir.StoreError as error:
            if error.code == "CLOSED":
                continue
        return 10 + number
    return 0

child = os.fork()
if child == 0:
    status = 9
    try:
        status = rejected()
        uses.clear()
        store.close()
        del store, topic, reader, latest, group, session, query, keys, pending
    finally:
        os._exit(status)
assert os.waitpid(child, 0)[1] == 0
assert pending.wait()[0].reason == "NO_TOPIC"
assert [record.kind for record in topic.records()] == ["CREATE"]
assert topic.put("k", "v").offset == 2
# The child did not clear the text about the owner of the directory.
try:
    weir.open(sys.argv[1])
except weir.StoreError as error:
    assert error.code == "LOCKED" and str(os.getpid()) in str(error), error
store.close()
"""


def test_a_forked_process_does_not_use_the_objects_of_its_parent(tmp_path: Path) -> None:
    command = [sys.executable, "-c", USE_IN_FORKED_CHILD, str(tmp_path / "s")]
    subprocess.run(command, check=True, timeout=60)


def test_errors_have_a_message_and_an_advice(tmp_path: Path, store: weir.Store) -> None:
    with pytest.raises(weir.RefusalError) as name:
        store.topic("a b")
    assert name.value.code == "BAD_NAME" and "BAD_NAME" in str(name.value)
    with pytest.raises(weir.StoreError) as locked:
        weir.open(tmp_path / "store")
    assert (locked.value.code, locked.value.retry) == ("LOCKED", "after")
    with pytest.raises(weir.StoreError, match="NOT_A_STORE"):
        weir.open(tmp_path / "nothing", create=False)
    with pytest.raises(weir.StoreError, match="BAD_OPTION"):
        weir.open(tmp_path / "x", durability="sometimes")  # type: ignore[arg-type]
    with pytest.raises(weir.RefusalError, match="TOO_LARGE"):
        store.topic("t").put("k" * 100_000, "")
    assert store.topic("t").put("k", "v").reason == "NO_TOPIC"
    with pytest.raises(TypeError, match="no option"):
        store.topic("t").create(colour=1)  # type: ignore[call-arg]
    assert all(issubclass(kind, weir.WeirError) for kind in [weir.QueryError, weir.InternalError])


def test_a_derived_handle_keeps_the_store_open(tmp_path: Path) -> None:
    path = tmp_path / "store"
    # The first handle and the second one are collected at once.
    reads = weir.open(path).with_consistency("leader").with_consistency("linear")
    assert reads.topics() == []
    reads.close()
    assert reads.closed
    with pytest.raises(weir.StoreError, match="LOCKED"):
        weir.open(path)
    del reads
    weir.open(path).close()


def test_topics_are_created_and_destroyed(store: weir.Store) -> None:
    topic = store.topic("t")
    assert topic.info() is None
    assert topic.create(compaction="latest", keys_max=1)
    assert topic.create().reason == "TOPIC_EXISTS"
    assert topic.put("a", "1") and topic.put("b", "1").reason == "QUOTA"
    assert topic.alter(keys_max=None) and topic.put("b", "1")
    assert topic.destroy() and store.topics() == []
    info = store.topics(destroyed=True)[0]
    assert (info.name, info.live, info.incarnation, info.last) == ("t", False, None, 5)


def test_durable_is_the_default(tmp_path: Path) -> None:
    with weir.open(tmp_path / "s") as store:
        assert store.durability == "group" and len(store.id) == 32
        store.topic("t").ensure()
        store.sync()
        stats = store.stats()
        assert stats["valid"] == 1 and stats["syncs"] >= 1


def test_values_are_found_in_records(topic: weir.Topic) -> None:
    document = {"a": [1, {"b": "x\u00e9\n"}], "n": 1.5, "big": 2**70, "none": None}
    topic.put("k", json.dumps(document))
    record = topic.get("k")
    assert record is not None and record.json() == document
    assert record.get("$.a[1].b") == "x\u00e9\n" and record.get("$.big") == 2**70
    assert record.get("$.none", 7) is None and record.get("$.absent", 7) == 7
    assert record.get("$.a") == b'[1, {"b": "x\\u00e9\\n"}]'
    assert record.json(lambda view: bytes(view)[:1]) == b"{"
    with pytest.raises(weir.QueryError):
        record.get("$[")
    topic.put("k", b"\xff{")
    broken = topic.get("k")
    assert broken is not None
    with pytest.raises(weir.QueryError, match="NOT_JSON"):
        broken.get("$.a")
    with pytest.raises(UnicodeDecodeError):
        broken.text()


def test_topics_of_a_store_are_queried(store: weir.Store, topic: weir.Topic) -> None:
    store.topic("people").ensure()
    topic.batch([weir.Put(f"o{n}", f'{{"n":{n},"by":"p{n % 2}"}}') for n in range(6)])
    store.topic("people").put("p1", '{"n":2.5}')
    query = store.query("orders", "people", where="@.n > 1", order="$.n desc", limit=4)
    items = [item for page in query for item in page]
    assert [item.get("$.n") for item in items] == [5, 4, 3, 2.5]
    assert [query.topic(item.source) for item in items] == ["orders"] * 3 + ["people"]
    counted = store.query("orders", select="count as n", group="$.by as by", order="$.by")
    assert [item.json() for page in counted for item in page] == [
        {"by": "p0", "n": 3},
        {"by": "p1", "n": 3},
    ]
    topic.put("o5", '{"n":1}')
    latest = store.query("*", view="latest", select="$.n", where="@.n >= 4")
    assert latest.as_of is not None and "mode" in latest.explain()
    assert [bytes(item) for page in latest for item in page] == [b"4"]
    with pytest.raises(weir.WeirError, match="TOPIC_UNKNOWN"):
        store.query("nothing")
    with pytest.raises(weir.QueryError, match="SYNTAX"):
        store.query("orders", where="@.n >")


def test_a_query_starts_at_a_position(store: weir.Store, topic: weir.Topic) -> None:
    topic.batch([weir.Put("", str(n)) for n in range(3)])
    # The topic begins with the record of its creation.
    for position, expected in (("start", "012"), (3, "12"), (-1, "2"), ("end", ""), ("1h", "012")):
        query = store.query("orders", position=position)
        assert "".join(item.text() for page in query for item in page) == expected
    with pytest.raises(weir.StoreError, match="BAD_OPTION.*sometime"):
        store.query("orders", position="sometime")
    with pytest.raises(weir.WeirError, match="BAD_OPTION"):
        store.query("orders", position="end", view="latest")


def test_a_query_that_follows_returns_new_records(store: weir.Store, topic: weir.Topic) -> None:
    query = store.query("orders", follow=True, select="$.n")
    assert query.next(0.01) is None
    topic.put("k", '{"n":1}')
    page = query.next(30)
    assert page is not None and [bytes(item) for item in page] == [b"1"]
    token = query.token()
    topic.put("k", '{"n":2}')
    again = store.query("orders", follow=True, select="$.n", token=token)
    page = again.next(30)
    assert page is not None and [bytes(item) for item in page] == [b"2"]
    timer = threading.Timer(0.05, again.cancel)
    timer.start()
    with pytest.raises(weir.ClientError, match="CANCELLED"):
        again.next()
    timer.join()


def test_dicts_and_lists_are_written_as_json(topic: weir.Topic) -> None:
    order = {"state": "open", "total": 12, "note": "\u00e4\n", "parts": [1.5, None, True]}
    values: list[dict[str, object] | list[object]] = [order, {}, [], [order, [order]]]
    for value in values:
        topic.put("k", value).check()
        found = topic.get("k")
        assert found is not None and found.json() == value
    text = json.dumps(order, separators=(",", ":"), ensure_ascii=False)
    first = topic.append(order).check()
    assert first.offset is not None
    record = topic.at(first.offset)
    assert record is not None and record.text() == text
    assert topic.put_if("new", order, [weir.Expect.key_absent()])
    assert all(topic.batch([weir.Put("a", order), weir.Put("b", [1])]))
    wrong: list[object] = [float("nan"), object(), {1}, "\ud800"]
    for bad in wrong:
        with pytest.raises((TypeError, ValueError)):
            topic.put("k", {"x": bad})
    cycle: list[object] = []
    cycle.append(cycle)
    with pytest.raises(ValueError, match="[Cc]ircular"):
        topic.put("k", cycle)
    keys: list[object] = [{}, []]
    for key in keys:
        with pytest.raises(TypeError, match="is needed"):
            topic.put(key, "v")  # type: ignore[arg-type]


def test_records_are_read_without_pages(topic: weir.Topic) -> None:
    for n in range(3):
        topic.put(str(n), {"n": n}).check()
    found = [record.json()["n"] for record in topic.records() if record.kind == "PUT"]
    assert found == [0, 1, 2]
    assert [record.offset for record in topic.records(last=2)] == [3, 4]
    assert [record.key for record in topic.records(after=3)] == [b"2"]
    tail = topic.follow(after=2, timeout=5.0)
    assert [next(tail).offset, next(tail).offset] == [3, 4]
    topic.put("late", "v").check()
    assert next(tail).key == b"late"
    assert [record.offset for record in topic.follow(timeout=0.0)] == []
    with pytest.raises(weir.WeirError, match="one position"):
        topic.records(after=1, last=1)


def test_a_record_prints_its_fields(topic: weir.Topic) -> None:
    topic.put("4711", {"state": "open"})
    record = topic.get("4711")
    assert repr(record) == '<weir.Record 2 PUT key="4711" value="{\\"state\\":\\"open\\"}">'
    assert str(record) == '2 PUT 4711={"state":"open"}'
    assert str(topic.at(1)) == "1 CREATE"
    topic.put("k", "x" * 101)
    assert repr(topic.get("k")).endswith(f'value="{"x" * 100}"…>')
    assert str(topic.get("k")) == f"3 PUT k={'x' * 100}…"
    topic.put(b"\xff", b"\xff\x00")
    assert "key=<1 bytes> value=<2 bytes>" in repr(topic.get(b"\xff"))
    assert str(topic.get(b"\xff")) == "4 PUT <1 bytes>=<2 bytes>"
    # A deleted key has no value, unlike a key with an empty one.
    topic.put("k", "")
    topic.delete("k")
    empty, deleted = topic.records(-2)
    assert (str(empty), str(deleted)) == ("5 PUT k=", "6 DELETE k")
    assert repr(empty) == '<weir.Record 5 PUT key="k" value="">'
    assert repr(deleted) == '<weir.Record 6 DELETE key="k">'
    assert repr(topic.at(1)) == "<weir.Record 1 CREATE>"
    # A record is one line, without control characters.
    topic.put("a\n9 PUT b", "x\x1b[2J\ty")
    assert str(topic.at(7)) == "7 PUT a 9 PUT b=x\ufffd[2J y"
    assert repr(topic.at(7)).endswith(r'key="a\n9 PUT b" value="x\u{1b}[2J\ty">')


def test_a_store_has_limits_of_keys_and_values(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with weir.open(path, key_bytes_max=4, value_bytes_max=8, or_connect=True) as store:
        topic = store.topic("t")
        topic.ensure()
        topic.put("1234", "12345678").check()
        for key, value in (("12345", ""), ("1234", "123456789")):
            with pytest.raises(weir.RefusalError, match="TOO_LARGE"):
                topic.put(key, value)


def test_the_state_of_a_group_has_its_positions(topic: weir.Topic) -> None:
    topic.batch([weir.Put("", str(n)) for n in range(3)])
    group = topic.group("g")
    assert len(group.claim(2)) == 2
    info = group.info()
    assert info.cursor < info.frontier <= info.last == 4 and info.unwritten_dead_letters == 0


def test_an_error_can_be_copied_and_sent_to_another_process() -> None:
    with pytest.raises(weir.QueryError, match="SYNTAX") as raised:
        weir.Query(where="@.n >")
    error = raised.value
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is weir.QueryError and str(again) == str(error)
        assert vars(again) == vars(error) and again.code == "SYNTAX"


def test_an_error_of_a_verdict_has_the_text_of_the_program(store: weir.Store) -> None:
    topic = store.topic("shaped")
    shape = (PROGRAMS / "json-shape.wasm").read_bytes()
    topic.create(program=shape, args="integer 0..9 $.n", fuel_max=10_000_000).check()
    verdict = topic.put("k", {"n": 10})
    with pytest.raises(weir.VerdictError, match="REJECTED: .*out of range: rule 1"):
        verdict.check()


def test_a_negative_time_is_an_error_with_its_name(topic: weir.Topic) -> None:
    group = topic.group("g")
    for bad in (-1.0, float("nan")):
        with pytest.raises(weir.StoreError, match="lease is (-1|NaN): not a time"):
            topic.group("other", lease=bad)
        with pytest.raises(weir.StoreError, match="lease is"):
            group.extend([(1, 2)], bad)
        with pytest.raises(weir.StoreError, match="delay is"):
            group.nack([(1, 2)], delay=bad)
        with pytest.raises(weir.StoreError, match="timeout is"):
            group.claim(timeout=bad)
    with pytest.raises(OverflowError):
        topic.group("other", attempts=-1)
    with pytest.raises(weir.StoreError, match="BAD_OPTION: max is 0"):
        group.claim(0)
    assert [info.name for info in topic.groups()] == ["g"]
