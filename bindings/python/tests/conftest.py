"""Helpers of the tests: a store, a server, the vectors. The tests import the installed package."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import weir

ROOT = Path(__file__).resolve().parents[3]
VECTORS = ROOT / "vectors"
PROGRAMS = ROOT / "programs/prebuilt"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[weir.Store]:
    with weir.open(tmp_path / "store", durability="memory") as store:
        yield store


@pytest.fixture
def topic(store: weir.Store) -> weir.Topic:
    topic = store.topic("orders")
    assert topic.ensure()
    return topic


class Server:
    """A `weir serve` process with a new store."""

    def __init__(self, program: str, directory: Path) -> None:
        self.process = subprocess.Popen(
            [program, "serve", "--http", "off", "--native", "127.0.0.1:0"]
            + ["--durability", "memory", "--at", str(directory / "served")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=dict(os.environ, HOME=str(directory), XDG_CONFIG_HOME=str(directory)),
        )
        assert self.process.stderr is not None
        printed = []
        for line in self.process.stderr:
            printed.append(line)
            if "native at " in line:
                self.url = line.split("native at ", 1)[1].split()[0]
                return
        raise AssertionError("the server does not print its address: " + "".join(printed))

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()
        assert self.process.stderr is not None
        self.process.stderr.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    program = os.environ.get("WEIR_BINARY")
    if not program:
        pytest.skip("WEIR_BINARY does not name the command `weir`")
    server = Server(program, tmp_path)
    try:
        yield server
    finally:
        server.stop()


REPORT = os.environ.get("WEIR_REPORT")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Prints one line for each test: its result and, if it failed, why."""
    decides = report.when == "call" or report.outcome != "passed"
    if REPORT and decides:
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
        line = {"name": report.nodeid, "outcome": report.outcome, "why": why}
        with open(REPORT, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Prints how many transcripts ran."""
    counts: dict[str, list[int]] = {}
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            counts.setdefault(name, []).append(value)
    for name, commands in sorted(counts.items()):
        line = f"{name}: {len(commands)} transcripts, {sum(commands)} commands"
        terminalreporter.write_line(line)
