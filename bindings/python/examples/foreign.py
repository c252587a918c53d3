"""Merges the partitions of a document database. The query requests pages of each partition,
which are read over HTTP with continuation tokens. If a partition is split, its parts replace it.

    python foreign.py http://127.0.0.1:8081

prints the documents in order. `lab/peers/cosmos-mock` is a server for trying it.
"""

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import weir

SOURCE: dict[str, Any] = {"shape": "member:$.Documents", "sorted": True}
"""Describes the pages of every partition."""


def ranges(url: str) -> list[dict[str, Any]]:
    """The partitions that can be read, with their parents."""
    with urllib.request.urlopen(url + "/pkranges") as answer:
        found: list[dict[str, Any]] = json.load(answer)["PartitionKeyRanges"]
        return found


def split(url: str, need: weir.Need) -> None:
    """Replaces a partition by its parts, which continue after the last page of the partition."""
    whole = need.source.name.decode()
    parts = [found["id"] for found in ranges(url) if whole in found["parents"]]
    need.source.replace([{"name": part, "first": need.continuation, **SOURCE} for part in parts])


def page(url: str, need: weir.Need) -> tuple[bytes, str | None] | None:
    """Returns a page of a partition and the name of the next page; None after a split."""
    request = urllib.request.Request(url + "/docs", method="POST")
    request.add_header("x-ms-documentdb-partitionkeyrangeid", need.source.name.decode())
    request.add_header("x-ms-max-item-count", "10")
    if need.continuation is not None:
        request.add_header("x-ms-continuation", need.continuation.decode())
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.read(), answer.headers.get("x-ms-continuation")
    except urllib.error.HTTPError as error:
        if error.code != 410:
            raise
    split(url, need)
    return None


def documents(url: str) -> Iterator[weir.Item]:
    """Yields the documents of all partitions in order, with the bytes that the server sent."""
    query = weir.Query(order="$.order, $.id")
    for found in ranges(url):
        query.add_source(found["id"], **SOURCE)
    for results in weir.pages(query, lambda need: page(url, need)):
        yield from results


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: foreign.py URL")
    for document in documents(sys.argv[1]):
        print(document.text())


if __name__ == "__main__":
    main()
