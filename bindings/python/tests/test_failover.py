"""A cluster that loses its leader, and then its majority, while a session writes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import weir

KILL, DEAD, END = 100, 200, 300


def check(records: list[weir.Record], first: int) -> None:
    """Checks that the records start at an offset, and that each arrives once and in order."""
    offsets = range(first, first + len(records))
    assert [record.offset for record in records] == list(offsets)
    values = [str(offset - 2) if offset > 1 else "" for offset in offsets]
    assert [record.text() for record in records] == values


def receive(listener: weir.Reader, count: int) -> list[weir.Record]:
    records: list[weir.Record] = []
    while len(records) < count:
        page = listener.next_page(60)
        assert page is not None, f"{len(records)} records of {count}"
        records += page
    assert len(records) == count
    return records


def value(store: weir.Store) -> str:
    """The value of the key."""
    current = store.topic("orders").get("k")
    assert current is not None
    return current.text()


def test_a_killed_leader_loses_no_write_and_a_write_is_received_before_it_is_committed(tmp_path: Path) -> None:
    program = os.environ.get("WEIR_CLUSTER")
    if not program:
        pytest.skip("WEIR_CLUSTER does not name what starts a cluster")
    command = [program, "cluster", str(tmp_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as cluster:
        assert cluster.stdin is not None and cluster.stdout is not None
        with weir.connect(cluster.stdout.readline().strip(), received=True) as store:
            topic = store.topic("orders")
            assert topic.ensure()
            session = store.session(bytes([7] * 16))
            listener = topic.follow_pages(start=True)
            for n in range(END):
                if n == KILL:
                    check(receive(listener, KILL + 1), 1)
                    cluster.stdin.write("kill\n")
                    cluster.stdin.flush()
                if n == DEAD:
                    assert cluster.stdout.readline().startswith("killed ")
                (verdict,) = session.execute([("orders", weir.Put("k", str(n)))])
                assert verdict.valid
            check(receive(listener, END - KILL), KILL + 2)
            records = list(topic.records())
            assert len(records) == END + 1
            check(records, 1)
            assert value(store.with_consistency("linear")) == "299"
            # The connection moves to the leader, which stays reachable.
            assert value(store.with_consistency("leader")) == "299"
            cluster.stdin.write("stop\n")
            cluster.stdin.flush()
            assert cluster.stdout.readline() == "stopped\n"
            assert value(store.with_consistency("local")) == "299"
            # No write can be committed now.
            pending = session.send([("orders", weir.Put("k", str(END)))])
            assert pending.wait_received(60) and not pending.done
            cluster.stdin.write("continue\n")
            cluster.stdin.flush()
            assert cluster.stdout.readline() == "continued\n"
            assert pending.wait(60)[0].valid
        cluster.stdin.close()
        assert cluster.wait() == 0
