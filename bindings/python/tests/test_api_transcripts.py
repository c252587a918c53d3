"""Runs the transcripts of `vectors/api`, which every language runs. The README in that folder
defines their commands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import weir
from conftest import VECTORS, Server
from test_query_transcripts import blocks

Op = weir.Put | weir.Delete | weir.Transaction | weir.Create | weir.Alter | weir.Destroy

FILES = sorted((VECTORS / "api").glob("*.txt"))
SERVED = [file for file in FILES if not file.stem.startswith("directory-")]


def empty(word: str) -> str:
    return "" if word == "-" else word


def value(text: str) -> bytes:
    return text.replace("\\n", "\n").encode()


def printable(data: bytes) -> str:
    return data.decode(errors="replace").replace("\n", "\\n")


def conditions(text: str) -> list[weir.Expect]:
    found = []
    for one in filter(None, text.split(",")):
        one, _, key_text = one.partition("@")
        word, _, number = one.partition(":")
        key = key_text or None
        makers: dict[str, Callable[[], weir.Expect]] = {
            "offset": lambda: weir.Expect.key_offset(int(number), key),
            "absent": lambda: weir.Expect.key_absent(key),
            "present": lambda: weir.Expect.key_present(key),
            "topic": lambda: weir.Expect.topic_offset(int(number)),
            "topic-absent-or": lambda: weir.Expect.topic_absent_or(int(number)),
            "topic-empty": weir.Expect.topic_empty,
            "incarnation": lambda: weir.Expect.incarnation(int(number)),
        }
        found.append(makers[word]())
    return found


def options(words: list[str]) -> dict[str, Any]:
    pairs = [word.split("=") for word in words]
    return {name: given if name == "compaction" else int(given) for name, given in pairs}


def record_line(record: weir.Record) -> str:
    line = f"{record.offset} {record.kind}"
    if record.kind == "DELETE":
        line += " " + printable(record.key)
    elif record.kind == "PUT":
        line += f" {printable(record.key)}={printable(record.value)}"
    return line + (" meta " + printable(record.meta) if record.meta else "")


def verdict_line(verdict: weir.Verdict) -> str:
    line = "again " if verdict.replayed else ""
    if verdict:
        line += f"valid {verdict.intention}"
        if verdict.offset is not None:
            line += f" at {verdict.offset}"
        if verdict.records > 1:
            line += f" +{verdict.records - 1}"
        return line
    line += f"{verdict.effect.lower()} {verdict.intention} {verdict.reason}"
    detail = verdict.detail or {}
    if "actual" in detail:
        line += f" actual {detail['actual']}"
    elif "limit" in detail:
        line += f" limit {detail['limit']}"
    elif "index" in detail:
        line += f" step {detail['index']} {detail['reason']}"
    elif "code" in detail:
        line += f" rejected {detail['code']} {detail['text']}"
    elif "trap" in detail:
        line += f" trap {detail['trap']}"
    elif "text" in detail:
        line += f" text {detail['text']}"
    return line


class Runner:
    """The state that the commands of a file use."""

    def __init__(self, directory: Path, url: str | None = None) -> None:
        self.directory = directory
        self.url = url
        self.store: weir.Store | None = None
        self.batch: list[tuple[str, Op]] = []
        self.steps: list[weir.Put | weir.Delete] = []
        self.pending: weir.Pending | None = None
        self.sessions: dict[str, weir.Session] = {}
        self.readers: dict[str, weir.Reader] = {}
        self.unused: dict[str, list[weir.Record]] = {}
        self.groups: dict[str, weir.Group] = {}
        self.work: dict[tuple[str, int], tuple[int, int]] = {}
        self.topics: dict[str, weir.Topic] = {}
        self.out: list[str] = []

    def run(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        try:
            getattr(self, "do_" + word.replace("-", "_"))(rest)
        except weir.RefusalError as error:
            if error.expected is not None:
                self.out.append(f"refused {error.code} next {error.expected}")
            else:
                self.out.append("! " + error.code)
        except weir.WeirError as error:
            self.out.append("! " + error.code)

    def open_store(self) -> weir.Store:
        if self.store is None:
            raise weir.StoreError("not opened yet", code="CLOSED", number=0, retry="no")
        return self.store

    def topic(self, name: str) -> weir.Topic:
        # A handle that was created before the close fails with CLOSED by itself.
        if self.store is not None and self.store.closed and name in self.topics:
            return self.topics[name]
        self.topics[name] = self.open_store().topic(name)
        return self.topics[name]

    def verdict(self, verdict: weir.Verdict) -> None:
        self.out.append(verdict_line(verdict))

    def do_open(self, _: str) -> None:
        if self.url is None:
            self.store = weir.open(self.directory, durability="memory")
        else:
            self.store = weir.connect(self.url)

    def do_close(self, _: str) -> None:
        self.open_store().close()

    def do_ensure(self, rest: str) -> None:
        self.out.append("created" if self.topic(rest).ensure() else "there")

    def do_create(self, rest: str) -> None:
        name, *words = rest.split()
        self.verdict(self.topic(name).create(**options(words)))

    def do_alter(self, rest: str) -> None:
        name, *words = rest.split()
        self.verdict(self.topic(name).alter(**options(words)))

    def do_destroy(self, rest: str) -> None:
        self.verdict(self.topic(rest).destroy())

    def op(self, line: str) -> tuple[str, Op]:
        word, _, rest = line.partition(" ")
        topic, _, rest = rest.partition(" ")
        if word == "create":
            return topic, weir.Create(**options(rest.split()))
        if word == "alter":
            return topic, weir.Alter(**options(rest.split()))
        if word == "destroy":
            return topic, weir.Destroy()
        if word == "transaction":
            steps, self.steps = self.steps, []
            return topic, weir.Transaction(steps, expect=conditions(rest))
        if word == "delete":
            return topic, weir.Delete(empty(rest))
        if word == "delete-if":
            key, _, expect = rest.partition(" ")
            return topic, weir.Delete(empty(key), expect=conditions(expect))
        key, _, rest = rest.partition(" ")
        if word == "put":
            return topic, weir.Put(empty(key), value(rest))
        second, _, rest = rest.partition(" ")
        if word == "put-if":
            return topic, weir.Put(empty(key), value(rest), expect=conditions(second))
        assert word == "put-meta", line
        return topic, weir.Put(empty(key), value(rest), meta=second)

    def do_put(self, rest: str) -> None:
        name, key, text = (rest + " ").split(" ", 2)
        self.verdict(self.topic(name).put(empty(key), value(text[:-1])))

    def do_put_meta(self, rest: str) -> None:
        name, key, meta, text = rest.split(" ", 3)
        self.verdict(self.topic(name).put(empty(key), value(text), meta=meta))

    def do_put_if(self, rest: str) -> None:
        name, key, expect, text = rest.split(" ", 3)
        self.verdict(self.topic(name).put_if(empty(key), value(text), conditions(expect)))

    def do_delete(self, rest: str) -> None:
        name, key = rest.split(" ")
        self.verdict(self.topic(name).delete(empty(key)))

    def do_delete_if(self, rest: str) -> None:
        name, key, expect = rest.split(" ")
        self.verdict(self.topic(name).delete(empty(key), expect=conditions(expect)))

    def do_add(self, rest: str) -> None:
        self.batch.append(self.op(rest))

    def take_batch(self) -> list[tuple[str, Op]]:
        batch, self.batch = self.batch, []
        return batch

    def do_submit(self, _: str) -> None:
        batch = self.take_batch()
        if not batch:
            # An empty list is an error in languages that pass a list with its length.
            self.out.append("! BAD_OPTION")
            return
        for verdict in self.open_store().batch(batch):
            self.verdict(verdict)

    def do_send(self, _: str) -> None:
        self.pending = self.open_store().send(self.take_batch())

    def do_wait(self, _: str) -> None:
        assert self.pending is not None
        for verdict in self.pending.wait():
            self.verdict(verdict)

    def do_step(self, rest: str) -> None:
        word, _, rest = rest.partition(" ")
        key, _, text = rest.partition(" ")
        step = weir.Put(empty(key), value(text)) if word == "put" else weir.Delete(empty(key))
        self.steps.append(step)

    def do_transaction(self, rest: str) -> None:
        name, _, expect = rest.partition(" ")
        steps, self.steps = self.steps, []
        self.verdict(self.topic(name).transaction(steps, expect=conditions(expect)))

    def do_session(self, rest: str) -> None:
        name, client = rest.split()
        self.sessions[name] = self.open_store().session(bytes.fromhex(client))

    def do_as(self, rest: str) -> None:
        name, _, command = rest.partition(" ")
        intentions = self.take_batch() if command == "submit" else [self.op(command)]
        for verdict in self.sessions[name].execute(intentions):
            self.verdict(verdict)

    def do_nonce(self, rest: str) -> None:
        self.out.append(str(self.sessions[rest].next_nonce))

    def do_resume(self, rest: str) -> None:
        name, number = rest.split()
        self.sessions[name].resume(int(number))

    def record(self, record: weir.Record | None) -> None:
        self.out.append("absent" if record is None else record_line(record))

    def do_get(self, rest: str) -> None:
        name, key = rest.split(" ")
        self.record(self.topic(name).get(empty(key)))

    def do_at(self, rest: str) -> None:
        name, offset = rest.split()
        self.record(self.topic(name).at(int(offset)))

    def scan(self, rest: str, values: bool) -> None:
        name, prefix, after, limit = rest.split(" ")
        topic = self.topic(name)
        keys = list(topic.keys(empty(prefix), after=empty(after) or None, limit=int(limit)))
        for key, offset in keys:
            line = f"{printable(key)} {offset}"
            if values:
                record = topic.get(key)
                assert record is not None and record.offset == offset
                line += " " + printable(record.value)
            self.out.append(line)
        if not keys:
            self.out.append("done")

    def do_scan(self, rest: str) -> None:
        self.scan(rest, False)

    def do_scan_values(self, rest: str) -> None:
        self.scan(rest, True)

    def do_log(self, rest: str) -> None:
        name, position = rest.split()
        for record in self.topic(name).pages(**start(position)).records():
            self.out.append(record_line(record))

    def do_listen(self, rest: str) -> None:
        reader, name, position = rest.split()
        options = start(position)
        if position == "start":
            options = {"start": True}
        options.pop("end", None)
        self.readers[reader] = self.topic(name).follow_pages(**options)
        self.unused[reader] = []

    def do_next(self, rest: str) -> None:
        name, count_text, ms = rest.split()
        count, unused = int(count_text), self.unused[name]
        while len(unused) < count:
            page = self.readers[name].next_page(int(ms) / 1000)
            if page is None:
                break
            unused.extend(page)
        self.unused[name] = unused[count:]
        for record in unused[:count]:
            self.out.append(record_line(record))
        if len(unused) < count:
            self.out.append("timeout")

    def do_info(self, rest: str) -> None:
        info = self.topic(rest).info()
        if info is None:
            self.out.append("absent")
        else:
            state = "live" if info.live else "dead"
            self.out.append(f"{state} first {info.first} last {info.last} keys {info.keys}")

    def do_topics(self, rest: str) -> None:
        self.out.extend(info.name for info in self.open_store().topics(destroyed=rest == "all"))

    def do_group(self, rest: str) -> None:
        name, topic, group, mode, member, *words = rest.split()
        options: dict[str, Any] = {}
        for word in words:
            option, _, text = word.partition("=")
            if option == "lease":
                options["lease"] = int(text) / 1000
            elif option == "dead":
                options["dead_letters"] = text
            elif option == "existing":
                options["existing"] = True
            elif option == "start":
                options.update(start(text))
            else:
                options[option] = int(text)
        join = self.topic(topic).group
        self.groups[name] = join(group, mode, member=member, **options)  # type: ignore[arg-type]

    def do_claim(self, rest: str) -> None:
        name, limit, ms = rest.split()
        claimed = self.groups[name].claim(int(limit), int(ms) / 1000)
        for work in claimed:
            record = work.record
            self.work[name, record.offset] = work.name
            self.out.append(f"{record_line(record)} attempt {work.attempts}")
        if not claimed:
            self.out.append("timeout")

    def claims(self, name: str, offsets: list[str]) -> list[tuple[int, int]]:
        return [self.work.get((name, int(offset)), (0, int(offset))) for offset in offsets]

    def lost(self, offsets: list[int]) -> None:
        self.out.extend(f"lost {offset}" for offset in offsets)

    def do_done(self, rest: str) -> None:
        name, *offsets = rest.split()
        self.lost(self.groups[name].ack(self.claims(name, offsets)))

    def do_done_soon(self, rest: str) -> None:
        name, *offsets = rest.split()
        self.groups[name].ack_soon(self.claims(name, offsets))

    def do_fail(self, rest: str) -> None:
        name, ms, *offsets = rest.split()
        self.lost(self.groups[name].nack(self.claims(name, offsets), delay=int(ms) / 1000))

    def do_extend(self, rest: str) -> None:
        name, ms, *offsets = rest.split()
        self.lost(self.groups[name].extend(self.claims(name, offsets), int(ms) / 1000))

    def do_take_over(self, rest: str) -> None:
        self.groups[rest].take_over()

    def do_leave(self, rest: str) -> None:
        self.groups[rest].leave()

    def do_reset(self, rest: str) -> None:
        name, position = rest.split()
        self.groups[name].reset(**start(position)).check()

    def do_end(self, rest: str) -> None:
        self.groups[rest].delete().check()

    def do_group_info(self, rest: str) -> None:
        info = self.groups[rest].info()
        self.out.append(
            f"cursor {info.cursor} lag {info.lag} leased {info.leased} waiting {info.waiting}"
        )


def start(position: str) -> dict[str, Any]:
    word, _, number = position.partition(":")
    if word == "text":
        return {"position": number}
    if word in ("after", "last"):
        return {word: int(number)}
    return {"end": True} if word == "end" else {}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_transcript(
    path: Path, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    record_property("vectors/api", run_blocks(path, Runner(tmp_path / "store")))


@pytest.mark.parametrize("path", SERVED, ids=lambda path: path.stem)
def test_transcript_served(
    path: Path, tmp_path: Path, server: Server, record_property: Callable[[str, object], None]
) -> None:
    runner = Runner(tmp_path / "store", server.url)
    record_property("vectors/api, served", run_blocks(path, runner))


def run_blocks(path: Path, runner: Runner) -> int:
    """Runs a transcript and returns the number of its commands."""
    commands = 0
    for number, (lines, printed) in enumerate(blocks(path)):
        runner.out = []
        for line in lines:
            runner.run(line)
        commands += len(lines)
        assert runner.out == printed, f"{path.name}, block {number + 1}"
    assert commands > 0
    return commands
