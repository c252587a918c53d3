"""Runs the transcripts of `vectors/query`, which every language runs.

Commands are above a rule, the expected output is below it.
`crates/weir-query/tests/query/script.rs` defines the commands.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import weir
from conftest import VECTORS

FILES = sorted((VECTORS / "query").glob("*.txt"))

BUDGETS = {
    "buffer": "buffer_bytes_max",
    "ahead": "pages_ahead",
    "sort": "sort_bytes_max",
    "groups": "groups_max",
    "distinct": "distinct_max",
    "sources": "sources_max",
    "item": "item_bytes_max",
    "depth": "depth_max",
}


class Runner:
    """The state that the commands of a file use."""

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}
        self.budgets: dict[str, int] = {}
        self.query: weir.Query | None = None
        self.sources: dict[str, weir.Source] = {}
        self.options: dict[str, dict[str, Any]] = {}
        self.token = b""
        self.out: list[str] = []

    def run(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        try:
            getattr(self, "do_" + word)(rest)
        except weir.WeirError as error:
            self.out.append(f"{error.code}: {error.args[0]}")

    @property
    def open_query(self) -> weir.Query:
        assert self.query is not None
        return self.query

    def do_set(self, rest: str) -> None:
        field, _, value = rest.partition(" ")
        fields: dict[str, tuple[str, Callable[[str], Any]]] = {
            "where": ("where", str),
            "order": ("order", str),
            "select": ("select", str),
            "group": ("group", str),
            "distinct": ("distinct", lambda _: True),
            "offset": ("offset", int),
            "limit": ("limit", int),
            "top": ("top", int),
            "strings": ("strings", lambda _: "utf16"),
            "complex": ("complex", lambda _: "rank"),
            "missing": ("missing", lambda _: "drop"),
            "strict": ("level", lambda _: "strict"),
            "bad": ("on_bad_item", lambda value: "skip" if value == "skip" else "undefined"),
            "mode": ("mode", str),
        }
        if field == "none":
            self.fields = {}
        elif field == "param":
            name, _, text = value.partition(" ")
            self.fields.setdefault("params", {})[name] = json.loads(text)
        else:
            name, convert = fields[field]
            self.fields[name] = convert(value)

    def do_budget(self, rest: str) -> None:
        name, value = rest.split(" ")
        self.budgets[BUDGETS[name]] = int(value)

    def make(self, token: bytes | None) -> None:
        self.sources = {}
        self.query = None
        self.query = weir.Query(**self.fields, budgets=self.budgets, token=token)

    def do_open(self, _: str) -> None:
        self.make(None)

    def do_resume(self, _: str) -> None:
        self.make(self.token)

    def do_stop(self, _: str) -> None:
        self.token = self.open_query.token()
        self.query = None

    def do_explain(self, _: str) -> None:
        self.out.extend(self.open_query.explain().splitlines())

    def name(self, number: int | None) -> str:
        found = [name for name, source in self.sources.items() if source.number == number]
        return found[0] if found else "?"

    def need(self, need: weir.Need) -> None:
        line = "need " if need.required else "ahead "
        line += self.name(need.source.number)
        if need.continuation is not None:
            line += " " + need.continuation.decode(errors="replace")
        self.out.append(line)

    def do_needs(self, _: str) -> None:
        for need in self.open_query.needs():
            self.need(need)

    def do_next(self, rest: str) -> None:
        step = self.open_query.next(int(rest) if rest else 256)
        if step is None:
            self.out.append("done")
        elif isinstance(step, weir.Page):
            for item in step:
                name = "constructed" if item.constructed else self.name(item.source)
                text = bytes(item).decode(errors="replace").replace("\n", "\\n")
                self.out.append(f"{name} {text}")
            if step.skipped:
                self.out.append(f"skipped {step.skipped}")
        else:
            for need in step:
                self.need(need)

    def do_values(self, rest: str) -> None:
        page = self.open_query.next()
        assert isinstance(page, weir.Page)
        for row in page.values(*rest.split()):
            texts = ["-" if value is None else bytes(value).decode() for value in row]
            self.out.append(" | ".join(texts))

    def do_source(self, rest: str) -> None:
        name, _, words = rest.partition(" ")
        options = source_options(name, words)
        self.sources[name] = self.open_query.add_source(**options)
        self.options[name] = options

    def source(self, name: str) -> weir.Source | int:
        return self.sources.get(name, 99)

    def do_page(self, rest: str) -> None:
        name, _, rest = rest.partition(" ")
        next_name, _, page = rest.partition(" ")
        self.open_query.enqueue(self.source(name), page.replace("\\n", "\n"), next_name)

    def do_frames(self, rest: str) -> None:
        name, text, page = rest.split(" ", 2)
        items = [item.split("/") for item in text.split(",")]
        meta: dict[str, list[int | tuple[int, int] | None]] = {}
        for at, (_, *words) in enumerate(items):
            for word in words:
                key, _, value = word.partition("=")
                column = meta.setdefault(key, [None] * len(items))
                column[at] = pair(value) if "+" in value else int(value)
        frames = [pair(item[0]) for item in items]
        data = page.replace("\\n", "\n")
        self.open_query.enqueue(self.source(name), data, frames=frames, meta=meta)

    def do_last(self, rest: str) -> None:
        name, _, page = rest.partition(" ")
        self.open_query.enqueue(self.source(name), page.replace("\\n", "\n").encode())

    def do_finish(self, rest: str) -> None:
        self.open_query.finish(self.source(rest))

    def do_abandon(self, rest: str) -> None:
        self.open_query.abandon(rest)

    def do_watermark(self, rest: str) -> None:
        name, *keys = rest.split(" ")
        self.open_query.watermark(self.source(name), *(json.loads(key) for key in keys))

    def do_split(self, rest: str) -> None:
        name, *words = rest.split(" ")
        parts = []
        for word in words:
            part, _, first = word.partition("=")
            options = dict(self.options[name], name=part, ordinal=None, first=first or None)
            parts.append(options)
        added = self.open_query.replace(self.source(name), parts)
        for options, source in zip(parts, added, strict=True):
            self.sources[options["name"]] = source
            self.options[options["name"]] = options


def pair(text: str) -> tuple[int, int]:
    offset, _, length = text.partition("+")
    return int(offset), int(length)


def source_options(name: str, words: str) -> dict[str, Any]:
    options: dict[str, Any] = {"name": name}
    for word in words.split():
        key, _, value = word.partition("=")
        flags = {
            "sorted": ("sorted", True),
            "trusted": ("trust_order", True),
            "unstable": ("stable", False),
            "partial": ("partial", True),
            "strict": ("level", "strict"),
            "none": ("level", "none"),
        }
        if key in flags:
            option, setting = flags[key]
            options[option] = setting
        elif key == "ordinal":
            options["ordinal"] = int(value)
        elif key == "bound":
            options["bound"] = [json.loads(part) for part in value.split(",")]
        elif key.startswith("meta."):
            options.setdefault("meta", {})[key.removeprefix("meta.")] = json.loads(value)
        else:
            options[key] = value
    return options


def blocks(path: Path) -> list[tuple[list[str], list[str]]]:
    """For each block, its commands and the expected output."""
    found = []
    for block in path.read_text(encoding="utf-8").rstrip().split("\n\n"):
        above, _, below = block.partition("\n----")
        commands = [line for line in above.split("\n") if line.strip() and line[0] != "#"]
        if commands:
            found.append((commands, below.split("\n")[1:]))
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_transcript(path: Path, record_property: Callable[[str, object], None]) -> None:
    runner = Runner()
    commands = 0
    for number, (lines, printed) in enumerate(blocks(path)):
        runner.out = []
        for line in lines:
            runner.run(line)
        commands += len(lines)
        assert runner.out == printed, f"{path.name}, block {number + 1}"
    record_property("vectors/query", commands)
    assert commands > 0


def test_there_are_transcripts() -> None:
    assert len(FILES) >= 9
