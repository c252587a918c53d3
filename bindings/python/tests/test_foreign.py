"""The example `foreign.py`, with the server of the lab."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
EXAMPLE = HERE.parent / "examples" / "foreign.py"
MOCK = HERE.parents[2] / "lab" / "peers" / "cosmos-mock"


@pytest.fixture(scope="module")
def mock(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The program that WEIR_COSMOS_MOCK names; builds it if the variable is not set."""
    program = os.environ.get("WEIR_COSMOS_MOCK")
    if program is not None:
        return program
    if shutil.which("go") is None:
        pytest.skip("there is no go to build lab/peers/cosmos-mock")
    built = tmp_path_factory.mktemp("mock") / "cosmos-mock"
    subprocess.run(
        ["go", "build", "-buildvcs=false", "-o", built, "."], cwd=MOCK, check=True, timeout=300
    )
    return str(built)


@pytest.fixture(
    params=[["-split", "-1"], ["-split", "1", "-split-after", "2"]], ids=["whole", "split"]
)
def url(mock: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """A server with 300 documents. In one of two variants, a partition splits."""
    command = [mock, "-partitions", "3", "-documents", "300", *request.param]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin is not None and server.stdout is not None
        yield server.stdout.readline().strip()
        # The server exits when its input is closed.
        server.stdin.close()
        server.wait()


def test_documents_are_in_order(url: str, tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLE), url]
    done = subprocess.run(
        command, cwd=tmp_path, check=True, timeout=60, capture_output=True, text=True
    )
    found = [json.loads(line)["id"] for line in done.stdout.splitlines()]
    with urllib.request.urlopen(url + "/ordered") as answer:
        assert found == json.load(answer)
