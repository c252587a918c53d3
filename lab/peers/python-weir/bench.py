"""A contender of the lab: the Python package on pages of JSON, compared with other ways in Python.

    enqueue   the query refers to a page of type `bytes` and scans it
    copied    the query copies and scans a page of type `bytearray`
    next      the query returns the items of a scanned page, 256 in each call whatever their size,
              and each item is read. The time of the last call, which releases the page, is reported
              separately, as `done`
    loop      the lower bound of next: an equal loop over existing `bytes` objects
    json      json.loads parses the page, and the key of each item is read
    orjson    orjson parses the page, and the key of each item is read

Implements the line protocol of docs/guide/lab.md. Needs the interpreter for which the package is
installed. The creation of the query is not timed. CPU time is that of the process.
"""

import json
import platform
import sys
from collections.abc import Callable
from time import perf_counter_ns, process_time_ns

import orjson

import weir

TITLES = {"escapes": '\\"q\\\\ ', "non-ascii": "é€😀 "}
# Maximum size of one call: a number of items, whatever their size.
BATCH = 256, 1 << 40


class Clock:
    """Adds up wall time and CPU time, in nanoseconds."""

    def __init__(self) -> None:
        self.wall = self.cpu = self.done = 0

    def __enter__(self) -> None:
        self._wall, self._cpu = perf_counter_ns(), process_time_ns()

    def __exit__(self, *_: object) -> None:
        cpu, wall = process_time_ns(), perf_counter_ns()
        self.cpu += cpu - self._cpu
        self.wall += wall - self._wall


class Input:
    """A page, and its items as objects, which are created before the timing."""

    def __init__(self, fields: dict[str, str]) -> None:
        self.count = int(fields["objects"])
        self.page = page(fields)
        self.batches: list[list[bytes]] = []

    def cut(self) -> list[list[bytes]]:
        """The items as objects, in batches."""
        if not self.batches:
            query, _ = scanned(self)
            while (step := query.next(*BATCH)) is not None:
                self.batches.append([bytes(item) for item in step])
        return self.batches


Each = Callable[[bytes], None]
Way = Callable[[Input, Clock, Each | None], int]


def deep(depth: int, width: int) -> str:
    """Nested arrays; depth 6 and width 10 result in 17 MB."""
    if depth == 0:
        return '"value"'
    inner = deep(depth - 1, width)
    return "[" + ",".join([f'{{"key":{inner}}}'] * width) + "]"


def page(fields: dict[str, str]) -> bytes:
    """Creates the page. All contenders create equal pages from equal parameters."""
    payload = deep(int(fields["depth"]), int(fields["width"]))
    title = TITLES.get(fields.get("title", ""), "")
    items = []
    for item in range(int(fields["objects"])):
        head = f'{{"id":"{item}","title":"{title}Partition 1 / Item {item} / Order {item}","huge_data":'
        if fields.get("key_last") == "true":
            items.append(f'{{"payload":{head}{payload}}},"order":{item}}}')
        else:
            items.append(f'{{"order":{item},"payload":{head}{payload}}}}}')
    return f"[{','.join(items)}]".encode()


def new_query() -> tuple[weir.Query, weir.Source]:
    """Creates a query that is ordered by the key."""
    query = weir.Query(order="$.order", budgets={"buffer_bytes_max": 1 << 30})
    return query, query.add_source(sorted=True)


def scanned(given: Input) -> tuple[weir.Query, weir.Source]:
    """Creates a query that is ordered by the key and has the page."""
    query, source = new_query()
    source.enqueue(given.page)
    return query, source


def drain(query: weir.Query, each: Each | None) -> None:
    """Passes the key of each item to `each` if it is not None."""
    while each is not None and (step := query.next(*BATCH)) is not None:
        for item in step:
            found = item.find_raw("$.order")
            each(bytes(found))


def enqueue(given: Input, clock: Clock, each: Each | None) -> int:
    query, source = new_query()
    with clock:
        source.enqueue(given.page)
    drain(query, each)
    return len(given.page)


def copied(given: Input, clock: Clock, each: Each | None) -> int:
    query, source = new_query()
    room = bytearray(given.page)
    with clock:
        source.enqueue(room)
    drain(query, each)
    return len(given.page)


def read_items(query: weir.Query, left: int) -> int:
    """Reads `left` items. Returns the sum of their lengths."""
    total = 0
    while left > 0:
        step = query.next(*BATCH)
        left -= len(step)
        for item in step:
            total += len(item)
    return total


def following(given: Input, clock: Clock, each: Each | None) -> int:
    query, _ = scanned(given)
    if each is not None:
        drain(query, each)
        query, _ = scanned(given)
    with clock:
        total = read_items(query, given.count)
    begun = perf_counter_ns()
    step = query.next(*BATCH)
    clock.done += perf_counter_ns() - begun
    if step is not None:
        raise AssertionError("more items than there are")
    return total


def loop(given: Input, clock: Clock, each: Each | None) -> int:
    batches = given.cut()
    with clock:
        total = 0
        for batch in batches:
            for item in batch:
                total += len(item)
    return total


def parsed(loads: Callable[[bytes], list[dict[str, int]]]) -> Way:
    def way(given: Input, clock: Clock, each: Each | None) -> int:
        with clock:
            keys = [item["order"] for item in loads(given.page)]
        for key in keys if each is not None else ():
            each(str(key).encode())
        return len(given.page)

    return way


WAYS: dict[str, Way] = {
    "enqueue": enqueue,
    "copied": copied,
    "next": following,
    "loop": loop,
    "json": parsed(json.loads),
    "orjson": parsed(orjson.loads),
}


def check(way: Way, given: Input) -> str:
    state = 0xCBF29CE484222325

    def each(key: bytes) -> None:
        nonlocal state
        for byte in key + b",":
            state = (state ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF

    touch = way(given, Clock(), each)
    return f"answer\t{state:016x}\t{touch:x}\t0\t0"


def run(way: Way, given: Input, count: int) -> str:
    # The process was just scheduled, so its first pass runs with cold caches.
    way(given, Clock(), None)
    clock, touch = Clock(), 0
    for _ in range(count):
        touch += way(given, clock, None)
    done = f"\tdone={clock.done}" if clock.done else ""
    return f"time\t{clock.wall}\t{clock.cpu}\t{touch & 0xFFFFFFFFFFFFFFFF:x}{done}"


def serve(way: Way, line: str, inputs: dict[str, Input]) -> str:
    verb, number, *rest = line.split("\t")
    match verb:
        case "load":
            inputs[number] = Input(dict(word.split("=", 1) for word in rest))
            return "ok"
        case "check":
            return check(way, inputs[number])
        case "run":
            return run(way, inputs[number], int(rest[0]))
    raise ValueError(f"no request {verb}")


def main() -> int:
    built = f"weir={weir.__version__}\tweir_profile={weir.build_profile}"
    versions = f"python={platform.python_version()}\torjson={orjson.__version__}\t{built}"
    if sys.argv[1:] == ["--version"]:
        print("python-weir,", versions.replace("\t", ", "))
        return 0
    if len(sys.argv) != 2 or sys.argv[1] not in WAYS:
        print("usage: bench.py", "|".join(WAYS), file=sys.stderr)
        return 2
    profile = "optimised" if weir.build_profile == "release" else "debug"
    print(f"hello\t1\tprofile={profile}\t{versions}", flush=True)
    inputs: dict[str, Input] = {}
    for line in sys.stdin:
        if line.strip() == "quit":
            break
        try:
            answer = serve(WAYS[sys.argv[1]], line.rstrip("\n"), inputs)
        except Exception as failed:  # the lab reports any error
            answer = f"error\t{failed!r}"
        print(answer, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
