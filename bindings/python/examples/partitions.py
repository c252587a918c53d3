"""An ordered query over a partitioned source. One of its partitions splits during the query.

The source is a function here; in practice, it is a request over HTTP that returns a page and a
continuation.
"""

import weir

PAGES = {
    ("p1", None): ('{"Documents":[{"id":"a","n":1},{"id":"b","n":5}]}', "p1-2"),
    ("p1", b"p1-2"): None,  # the partition has split
    ("p1a", b"p1-2"): ('{"Documents":[{"id":"c","n":6}]}', None),
    ("p1b", b"p1-2"): ('{"Documents":[{"id":"d","n":7}]}', None),
    ("p2", None): ('{"Documents":[{"id":"e","n":2},{"id":"f","n":8}]}', None),
}


def fetch(need: weir.Need) -> tuple[str, str | None] | None:
    """Returns a page and the name of the next page."""
    name = need.source.name.decode()
    page = PAGES[name, need.continuation]
    if page is None:
        parts = [{"name": name + part, "first": need.continuation} for part in "ab"]
        need.source.replace([dict(part, **OPTIONS) for part in parts])
    return page


OPTIONS = {"sorted": True, "shape": "member:$.Documents"}


def main() -> None:
    query = weir.Query(order="$.n", select="$.id")
    for name in ("p1", "p2"):
        query.add_source(name, sorted=True, shape="member:$.Documents")
    found = [item.json() for page in weir.pages(query, fetch) for item in page]
    print(found)
    assert found == ["a", "e", "b", "c", "d", "f"]


if __name__ == "__main__":
    main()
