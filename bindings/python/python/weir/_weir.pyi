"""Types of the native module, with the first paragraph of each of its docstrings, for editors."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import Any, Literal, TypeVar, final, overload

Data = bytes | bytearray | memoryview | str
Value = Data | dict[str, Any] | list[Any]
"""A value to be written: bytes or text as they are, a dict or list as JSON."""
AnyPath = str | PathLike[str]
Effect = Literal["VALID", "INVALID", "ERROR"]
Durability = Literal["group", "each", "interval", "memory"]
GroupMode = Literal["shared", "keyed", "exclusive"]
Scalar = None | bool | int | float | str
D = TypeVar("D")

__version__: str
build_profile: Literal["debug", "release"]

def open(
    path: AnyPath,
    *,
    durability: Durability = "group",
    interval_ms: int = 1000,
    create: bool = True,
    program: str | None = None,
    snapshot_log_bytes: int | None = None,
    log_segment_bytes: int | None = None,
) -> Store:
    """Opens the store in a directory, or makes one."""
def connect(
    url: str,
    *,
    token: str | None = None,
    authority: AnyPath | None = None,
    identity: tuple[AnyPath, AnyPath] | None = None,
    agent: str | None = None,
    connect_timeout: float = 5.0,
    patience: float = 30.0,
    received: bool = False,
) -> Store:
    """Connects to a server: "weir://HOST[:PORT]", "weirs://HOST[:PORT]" (TLS) or "unix:PATH"."""

@final
class Buffer:
    """Memory for a page: `readinto` fills it, then a query takes it without a copy."""

    def __new__(cls, size: int) -> Buffer: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Verdict:
    """The final answer to one intention. True when it is VALID."""

    @property
    def effect(self) -> Effect:
        """"VALID", "INVALID" or "ERROR"."""
    @property
    def valid(self) -> bool:
        """Whether it was executed."""
    @property
    def reason(self) -> str | None:
        """Why not: the name of an error, such as "CONFLICT"; None for VALID."""
    @property
    def number(self) -> int | None:
        """The number of the reason; None for VALID."""
    @property
    def detail(self) -> dict[str, int | str] | None:
        """More about the reason, by name: `actual` (the offset that a condition found), `limit`,
        `index` and `reason` (of a transaction), `code` and `text` (of a program), `trap`. None when
        there is no more.
        """
    @property
    def intention(self) -> int:
        """Position in the global order. Every verdict has one."""
    @property
    def offset(self) -> int | None:
        """Offset of its first record; None when it made none."""
    @property
    def records(self) -> int:
        """Number of its records."""
    @property
    def replayed(self) -> bool:
        """Whether this is the kept answer to an earlier sending of the same nonce."""
    @property
    def fuel(self) -> int:
        """Fuel that the topic's program used; 0 without one."""
    def check(self) -> Verdict:
        """The verdict itself when it is VALID; else raises `VerdictError`."""
    def __bool__(self) -> bool: ...

@final
class Put:
    """Appends a record; with a key, sets the key."""

    def __new__(
        cls, key: Data, value: Value, *, expect: Sequence[Expect] = (), meta: Data = b""
    ) -> Put: ...

@final
class Delete:
    """Removes a key. VALID even if it has no value."""

    def __new__(cls, key: Data, *, expect: Sequence[Expect] = (), meta: Data = b"") -> Delete: ...

@final
class Transaction:
    """All steps or none, in order: each a `Put` or `Delete` without conditions of its own."""

    def __new__(
        cls, ops: Sequence[Put | Delete], *, expect: Sequence[Expect] = ()
    ) -> Transaction: ...
    @property
    def ops(self) -> list[Put | Delete]:
        """The steps."""

@final
class Create:
    """Makes a topic live."""

    def __new__(
        cls,
        *,
        program: Data | None = None,
        args: Data = b"",
        compaction: Literal["off", "latest"] = "off",
        tombstone_ttl_ms: int | None = None,
        compaction_lag_ms: int | None = None,
        key_bytes_max: int | None = None,
        value_bytes_max: int | None = None,
        keys_max: int | None = None,
        retention_age_ms: int | None = None,
        retention_bytes: int | None = None,
        retention_records: int | None = None,
        hold_for_groups: Sequence[str] = (),
        fuel_max: int | None = None,
        memory_bytes_max: int | None = None,
        emits_max: int | None = None,
        emit_bytes_max: int | None = None,
        state_entries_max: int | None = None,
        state_bytes_max: int | None = None,
    ) -> Create: ...

@final
class Alter:
    """Replaces the options of a topic."""

    def __new__(
        cls,
        *,
        compaction: Literal["off", "latest"] = "off",
        tombstone_ttl_ms: int | None = None,
        compaction_lag_ms: int | None = None,
        key_bytes_max: int | None = None,
        value_bytes_max: int | None = None,
        keys_max: int | None = None,
        retention_age_ms: int | None = None,
        retention_bytes: int | None = None,
        retention_records: int | None = None,
        hold_for_groups: Sequence[str] = (),
        fuel_max: int | None = None,
        memory_bytes_max: int | None = None,
        emits_max: int | None = None,
        emit_bytes_max: int | None = None,
        state_entries_max: int | None = None,
        state_bytes_max: int | None = None,
    ) -> Alter: ...

@final
class Destroy:
    """Ends a topic."""

    def __new__(cls) -> Destroy: ...

@final
class Expect:
    """A condition on the state in which an intention meets its topic. If one does not hold, the
    verdict is INVALID with the reason CONFLICT. A `key` of None is the key of the intention.
    """

    @staticmethod
    def key_offset(offset: int, key: Data | None = None) -> Expect:
        """The key's current value was written at this offset."""
    @staticmethod
    def key_absent(key: Data | None = None) -> Expect:
        """The key has no value."""
    @staticmethod
    def key_present(key: Data | None = None) -> Expect:
        """The key has a value."""
    @staticmethod
    def topic_offset(offset: int) -> Expect:
        """The topic's last record has this offset."""
    @staticmethod
    def topic_absent_or(offset: int) -> Expect:
        """The topic does not live, or its last record has this offset."""
    @staticmethod
    def topic_empty() -> Expect:
        """The topic lives, and has no record after the one that created it."""
    @staticmethod
    def incarnation(intention: int) -> Expect:
        """The topic lives since this intention offset."""

@final
class Pending:
    """Verdicts that are on their way: made by `send`. Dropping it does not take the intentions
    back.
    """

    @property
    def done(self) -> bool:
        """Whether `wait` would return at once."""
    def wait(self, timeout: float | None = None) -> list[Verdict]:
        """Waits for the verdicts, in the order of the intentions; at most `timeout` seconds."""
    def wait_received(self, timeout: float | None = None) -> bool:
        """Waits until all intentions are queued for the log, which promises nothing, or answered; at
        most `timeout` seconds. Returns whether they are.
        """
    def notify_received(self, call: Callable[[D], object], argument: D) -> None:
        """Calls `call(argument)` from another thread, once, when `wait_received` would return at
        once.
        """
    def notify(self, call: Callable[[D], object], argument: D) -> None:
        """Calls `call(argument)` from another thread, once, when `wait` would return at once."""

@final
class Session:
    """A writer whose intentions are executed exactly once, also when they are sent again after a
    crash. One at a time for each client id.
    """

    @property
    def client(self) -> bytes:
        """The client id, 16 bytes."""
    @property
    def next_nonce(self) -> int:
        """The number of the next intention: one more than the last one that was sent, or that the
        store knows.
        """
    def resume(self, nonce: int) -> None:
        """Resumes at a nonce whose response was not seen: the store answers the intentions that it
        has executed, and executes the others.
        """
    def send(self, intentions: Sequence[tuple[str, Op]]) -> Pending:
        """Sends intentions, each a topic with a `Put` or `Delete`, under the next nonces; does not
        wait for the verdicts.
        """
    def execute(self, intentions: Sequence[tuple[str, Op]]) -> list[Verdict]:
        """Sends intentions and waits for their verdicts."""

@final
class Store:
    """An event store: in a directory that this process has open, or behind a server. Threads may
    share it. A context manager that closes it.
    """

    @property
    def durability(self) -> Durability:
        """What an answer to a write means for the disk."""
    @property
    def id(self) -> str:
        """The store's id, 32 hexadecimal digits."""
    @property
    def closed(self) -> bool:
        """Whether it was closed here."""
    def topic(self, name: str) -> Topic:
        """A handle on a topic, whether it lives or not. Costs nothing."""
    def topics(self, *, dead: bool = False) -> list[TopicInfo]:
        """All topics that live, or all that ever did, by name."""
    def batch(self, intentions: Sequence[tuple[str, Op]]) -> list[Verdict]:
        """Many intentions in one call, each a topic with a `Put` or `Delete`: one verdict for each,
        in order. They are independent of each other.
        """
    def send(self, intentions: Sequence[tuple[str, Op]]) -> Pending:
        """Sends the intentions as a batch and returns without waiting for the verdicts."""
    def session(self, client: bytes) -> Session:
        """A writer whose intentions are executed exactly once. `client` is 16 bytes that nobody
        else uses, kept by the caller for the next time.
        """
    def query(
        self,
        *topics: str,
        view: Literal["log", "latest"] = "log",
        as_of: int | None = None,
        follow: bool = False,
        kinds: Sequence[str] | None = None,
        reset_earliest: bool = False,
        push_down: bool = True,
        patience: float = 30.0,
        budgets: dict[str, int] | None = None,
        token: bytes | None = None,
        where: str = "",
        order: str = "",
        select: str = "",
        group: str = "",
        distinct: bool = False,
        offset: int = 0,
        limit: int | None = None,
        top: int | None = None,
        params: dict[str, Scalar] | None = None,
        strings: Literal["scalar", "utf16"] = "scalar",
        complex: Literal["error", "rank"] = "error",
        missing: Literal["first", "drop"] = "first",
        level: Literal["none", "structural", "strict"] = "structural",
        on_bad_item: Literal["error", "skip", "undefined"] = "error",
        mode: Literal["sequential", "arrival", "round_robin", "merge", "sort"] | None = None,
    ) -> TopicQuery:
        """Begins a query over topics: names, or patterns like "orders.*" (one more part of a name)
        and "orders.**" (any number). An iterator of pages.
        """
    def sync(self) -> None:
        """Makes everything answered so far durable, at any level."""
    def stats(self) -> dict[str, int]:
        """Counts since the store was opened, by name."""
    def close(self) -> None:
        """Finishes what is queued and closes the store; a connection ends when everything that was
        sent is answered. Pages and records stay valid. Closing twice does nothing.
        """
    def __enter__(self) -> Store: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

@final
class Topic:
    """A handle on a topic. Writing waits for the verdict; `send` does not."""

    @property
    def name(self) -> str:
        """The name."""
    def create(
        self,
        *,
        program: Data | None = None,
        args: Data = b"",
        compaction: Literal["off", "latest"] = "off",
        tombstone_ttl_ms: int | None = None,
        compaction_lag_ms: int | None = None,
        key_bytes_max: int | None = None,
        value_bytes_max: int | None = None,
        keys_max: int | None = None,
        retention_age_ms: int | None = None,
        retention_bytes: int | None = None,
        retention_records: int | None = None,
        hold_for_groups: Sequence[str] = (),
        fuel_max: int | None = None,
        memory_bytes_max: int | None = None,
        emits_max: int | None = None,
        emit_bytes_max: int | None = None,
        state_entries_max: int | None = None,
        state_bytes_max: int | None = None,
    ) -> Verdict:
        """Makes the topic live; INVALID with TOPIC_EXISTS when it does already."""
    def ensure(self) -> bool:
        """Creates the topic if it does not exist. Returns whether this call created it."""
    def alter(
        self,
        *,
        compaction: Literal["off", "latest"] = "off",
        tombstone_ttl_ms: int | None = None,
        compaction_lag_ms: int | None = None,
        key_bytes_max: int | None = None,
        value_bytes_max: int | None = None,
        keys_max: int | None = None,
        retention_age_ms: int | None = None,
        retention_bytes: int | None = None,
        retention_records: int | None = None,
        hold_for_groups: Sequence[str] = (),
        fuel_max: int | None = None,
        memory_bytes_max: int | None = None,
        emits_max: int | None = None,
        emit_bytes_max: int | None = None,
        state_entries_max: int | None = None,
        state_bytes_max: int | None = None,
    ) -> Verdict:
        """Replaces the options; see `create`."""
    def replace(
        self, program: Data, args: Data = b"", *, expected: bytes | None = None
    ) -> Verdict:
        """Puts another program in the place of the topic's; with `expected`, the SHA-256 of the
        code, only in the place of that one.
        """
    def destroy(self) -> Verdict:
        """Ends the topic: its keys are gone, its offsets go on if it is created again."""
    def info(self) -> TopicInfo | None:
        """What the topic is now; None when it never was created."""
    def append(self, value: Value, *, meta: Data = b"") -> Verdict:
        """Appends a record without key."""
    def put(self, key: Data, value: Value, *, meta: Data = b"") -> Verdict:
        """Appends a record and sets its key. Ctrl-C ends the wait, not the write."""
    def put_if(
        self, key: Data, value: Value, expect: Sequence[Expect], *, meta: Data = b""
    ) -> Verdict:
        """Puts the record if all conditions hold. Otherwise the verdict is INVALID with CONFLICT,
        and `detail["actual"]` is the offset that was found.
        """
    def delete(self, key: Data, *, expect: Sequence[Expect] = (), meta: Data = b"") -> Verdict:
        """Removes a key. VALID even if it has no value."""
    def batch(self, ops: Sequence[Op]) -> list[Verdict]:
        """Many intentions in one call: one verdict for each, in order. They are independent of each
        other; see `transaction`.
        """
    def send(self, ops: Sequence[Op]) -> Pending:
        """Sends the operations as a batch and returns without waiting for the verdicts."""
    def transaction(
        self, ops: Sequence[Put | Delete], *, expect: Sequence[Expect] = ()
    ) -> Verdict:
        """All steps or none, in order. Conditions are given for the whole, with keys of their own.
        """
    def get(self, key: Data) -> Record | None:
        """The record with the key's current value; None without one."""
    def at(self, offset: int) -> Record | None:
        """The record at an offset, if it is there."""
    def keys(
        self, prefix: Data = b"", *, after: Data | None = None, limit: int | None = None
    ) -> Iterator[tuple[bytes, int]]:
        """Keys with a value, in byte order, each with the offset of its record: an iterator.
        `after` is left out.
        """
    def pages(
        self,
        position: str | None = None,
        *,
        after: int | None = None,
        last: int | None = None,
        time_ms: int | None = None,
        end: bool = False,
    ) -> Reader:
        """Pages of records up to the newest: an iterator."""
    def records(
        self,
        position: str | None = None,
        *,
        after: int | None = None,
        last: int | None = None,
        time_ms: int | None = None,
    ) -> Iterator[Record]:
        """Records up to the newest: an iterator. Where it begins is told as for `pages`."""
    def tail(
        self,
        position: str | None = None,
        *,
        after: int | None = None,
        last: int | None = None,
        time_ms: int | None = None,
        start: bool = False,
        timeout: float | None = None,
    ) -> Iterator[Record]:
        """Records as they come: an iterator that waits, as `listen` does."""
    def listen(
        self,
        position: str | None = None,
        *,
        after: int | None = None,
        last: int | None = None,
        time_ms: int | None = None,
        start: bool = False,
        timeout: float | None = None,
    ) -> Reader:
        """Pages of records as they come: an iterator that waits. It begins after the newest record
        unless told otherwise, and ends when none came for `timeout` seconds; None: never. The topic
        need not be there yet. Ctrl-C ends the wait.
        """
    def latest(self, *, timeout: float | None = 0.0) -> Latest:
        """The current value of each key, in byte order and marked `replay`; then new records, in
        order, until none came for `timeout` seconds: an iterator of records.
        """
    def group(
        self,
        name: str,
        mode: GroupMode = "shared",
        *,
        position: str | None = None,
        after: int | None = None,
        last: int | None = None,
        time_ms: int | None = None,
        end: bool = False,
        lease: float | None = None,
        attempts: int = 0,
        pending: int | None = None,
        dead_letters: str = "",
        member: Data | None = None,
        existing: bool = False,
    ) -> Group:
        """A member of the group of this name, which is made if it is not there. The topic must
        live.
        """
    def groups(self) -> list[GroupInfo]:
        """The groups of the topic, by name."""

@final
class TopicInfo:
    """A topic as it was when it was asked for."""

    @property
    def name(self) -> str:
        """Name."""
    @property
    def live(self) -> bool:
        """Whether it lives."""
    @property
    def incarnation(self) -> int | None:
        """Intention offset of its CREATE, when it lives."""
    @property
    def first(self) -> int:
        """Offset of the oldest record that is still there; 0 for none."""
    @property
    def last(self) -> int:
        """Offset of the newest record."""
    @property
    def keys(self) -> int:
        """Keys with a value."""
    @property
    def bytes(self) -> int:
        """Bytes of its records, as stored."""

@final
class Reader:
    """Pages of records of a topic, in order, each once: an iterator. Used by one thread at a time.
    """

    @property
    def position(self) -> int:
        """Offset from which the next page starts, or the first one after it."""
    @property
    def timeout(self) -> float | None:
        """Seconds that the iterator waits for a page; None: for ever."""
    def next_page(self, timeout: float | None = 0.0) -> RecordPage | None:
        """The next page; None when there is none within `timeout` seconds (None: waits for ever).
        """
    def records(self) -> Iterator[Record]:
        """All records of the pages: an iterator, with the patience of this one."""
    def seek(self, after: int) -> None:
        """Continues at the first record after this offset."""
    def __iter__(self) -> Reader: ...
    def __next__(self) -> RecordPage: ...

@final
class Latest:
    """What holds now, and then what comes: an iterator of records."""

    def __iter__(self) -> Latest: ...
    def __next__(self) -> Record: ...

@final
class RecordPage(Sequence[Record]):
    """Records that were read together, in order: a sequence. Immutable; may be kept and used by any
    thread, also after the store is closed. A buffer of the whole block that they lie in.
    """

    @property
    def first(self) -> int | None:
        """Offset of the first record."""
    @property
    def last(self) -> int | None:
        """Offset of the last record, after which a reader resumes."""
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Record]: ...
    def __iter__(self) -> Iterator[Record]: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Record:
    """A record: the entry of an intention in a topic. Immutable; a buffer of its value, which is
    not copied and lives as long as the record or a view of it.
    """

    @property
    def offset(self) -> int:
        """Position in the topic, from 1."""
    @property
    def intention(self) -> int:
        """Position of its intention in the global order."""
    @property
    def time_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC at which it was proposed."""
    @property
    def kind(self) -> Literal["PUT", "DELETE", "CREATE", "DESTROY", "ALTER", "REPLACE"]:
        """"PUT", "DELETE", "CREATE", "DESTROY", "ALTER" or "REPLACE"."""
    @property
    def key(self) -> bytes:
        """The key; empty when it has none."""
    @property
    def value(self) -> bytes:
        """The value, copied; `memoryview(record)` does not copy."""
    @property
    def meta(self) -> bytes:
        """Metadata that the store does not read."""
    @property
    def client(self) -> bytes:
        """Id of the client that wrote it, 16 bytes; all zero without a session."""
    @property
    def nonce(self) -> int:
        """The client's number of the intention; 0 without a session."""
    @property
    def transaction(self) -> bool:
        """Whether it is part of a transaction."""
    @property
    def final_(self) -> bool:
        """Whether it is the last record of its intention."""
    @property
    def replay(self) -> bool:
        """From `Topic.latest`: whether it is from before the reading began."""
    def text(self) -> str:
        """The value as text."""
    def json(self, loads: Callable[[Any], Any] | None = None) -> Any:
        """The value decoded; `loads` takes a memoryview (`json.loads` gets bytes)."""
    def get(self, path: str, default: object = None) -> Any:
        """The scalar at a singular JSONPath in the value, decoded; an array or object as bytes;
        `default` where there is nothing. Reads no further than it has to.
        """
    def __bytes__(self) -> bytes: ...
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Group:
    """A member of a group. Used by one thread at a time."""

    @property
    def name(self) -> str:
        """The name of the group."""
    def claim(self, max: int = 100, timeout: float | None = 0.0) -> list[Work]:
        """Takes up to `max` records, waiting up to `timeout` seconds for the first one (None: for
        ever). Ctrl-C ends the wait.
        """
    def _fetch(self, max: int, timeout: float | None) -> bool: ...
    def _take(self, max: int) -> list[Work]: ...
    def ack(self, work: Sequence[AnyWork]) -> list[int]:
        """These are done, for good when this returns. The offsets of those that are with somebody
        else by now. In an exclusive group everything up to the last of them is done.
        """
    def ack_soon(self, work: Sequence[AnyWork]) -> None:
        """Acknowledges records of an exclusive group without waiting. The
        acknowledgement is written soon, together with later ones. After a crash the records may be
        delivered again.
        """
    def nack(
        self, work: Sequence[AnyWork], *, delay: float = 0.0, reason: str = ""
    ) -> list[int]:
        """These are given back; they may be claimed again after `delay` seconds. The offsets of
        those that are with somebody else by now.
        """
    def extend(self, work: Sequence[AnyWork], lease: float) -> list[int]:
        """The member is still at them: their leases end in `lease` seconds. The offsets of those
        that it has not any more.
        """
    def reset(
        self,
        position: str | None = None,
        *,
        after: int | None = None,
        last: int | None = None,
        time_ms: int | None = None,
        end: bool = False,
    ) -> Verdict:
        """Moves the group to a position, as for `Topic.pages`: everything before it counts as done, and
        nothing after it. Members lose the records that they have claimed.
        """
    def take_over(self) -> None:
        """Makes this member the owner of an exclusive group, in place of the present owner."""
    def leave(self) -> None:
        """Gives up the ownership of an exclusive group, so that another member need not wait."""
    def delete(self) -> Verdict:
        """Ends the group; its position is forgotten."""
    def info(self) -> GroupInfo:
        """The group as it is now."""

@final
class Work:
    """A record that a member has."""

    @property
    def record(self) -> Record:
        """The record."""
    @property
    def name(self) -> tuple[int, int]:
        """What names it, for a member that puts it aside: its claim and its offset."""
    @property
    def attempts(self) -> int:
        """How often it was delivered, this time included; 1 in an exclusive group."""

@final
class GroupInfo:
    """A group as it was when it was asked for."""

    @property
    def topic(self) -> str:
        """Topic it reads."""
    @property
    def name(self) -> str:
        """Its name."""
    @property
    def mode(self) -> GroupMode:
        """"shared", "keyed" or "exclusive"."""
    @property
    def cursor(self) -> int:
        """Everything up to here is done."""
    @property
    def lag(self) -> int:
        """Offsets that are not done."""
    @property
    def leased(self) -> int:
        """Records that members have."""
    @property
    def waiting(self) -> int:
        """Records that were seen and wait to be claimed."""
    @property
    def redeliveries(self) -> int:
        """Deliveries beyond the first of a record."""
    @property
    def deaths(self) -> int:
        """Records that were given up."""
    @property
    def lease_ms(self) -> int:
        """Milliseconds of a lease."""
    @property
    def attempts_max(self) -> int:
        """Deliveries after which a record is given up; 0: never."""
    @property
    def dead_letters(self) -> str:
        """Topic for dead letters; empty for none."""

@final
class Query:
    """A query over pages of JSON: ordered merge, filter, groups, limits. It does no I/O: `next`
    says what it needs, the caller fetches it. Used by one thread at a time.
    """

    def __new__(
        cls,
        *,
        where: str = "",
        order: str = "",
        select: str = "",
        group: str = "",
        distinct: bool = False,
        offset: int = 0,
        limit: int | None = None,
        top: int | None = None,
        params: dict[str, Scalar] | None = None,
        strings: Literal["scalar", "utf16"] = "scalar",
        complex: Literal["error", "rank"] = "error",
        missing: Literal["first", "drop"] = "first",
        level: Literal["none", "structural", "strict"] = "structural",
        on_bad_item: Literal["error", "skip", "undefined"] = "error",
        mode: Literal["sequential", "arrival", "round_robin", "merge", "sort"] | None = None,
        budgets: dict[str, int] | None = None,
        token: bytes | None = None,
    ) -> Query: ...
    def add_source(
        self,
        name: str | bytes | None = None,
        *,
        sorted: bool = False,
        shape: str = "array",
        level: Literal["none", "structural", "strict"] | None = None,
        first: str | bytes | None = None,
        ordinal: int | None = None,
        stable: bool = True,
        tie: str = "",
        meta: dict[str, Scalar] = ...,
        bound: Iterable[Scalar] | None = None,
        partial: bool = False,
        trust_order: bool = False,
    ) -> Source:
        """Adds a source."""
    def enqueue(
        self,
        source: Source | int,
        data: PageData,
        next: str | bytes | None = None,
        *,
        length: int | None = None,
        frames: Sequence[tuple[int, int]] | None = None,
        meta: Mapping[str, Sequence[int | tuple[int, int] | None]] | None = None,
    ) -> None:
        """Hands in a page of a source. `next` names the page after it; None: this was the last."""
    def finish(self, source: Source | int) -> None:
        """Ends a source: it has no more pages."""
    def abandon(self, name: str | bytes) -> None:
        """Gives up a source of the run that the token resumes: the rest of its rows will not come.
        While a source of that run is neither added nor given up, `next` raises QueryError
        SOURCES_OWED, which is not final.
        """
    def watermark(self, source: Source | int, *keys: Scalar) -> None:
        """Promises that nothing below these order keys will come from a source."""
    def replace(self, source: Source | int, parts: Sequence[dict[str, Any]]) -> list[Source]:
        """Retires a source at the end of the pages that came, and puts others in its place: the
        parts it was split into. Each is a dict with the options of `add_source`.
        """
    def next(self, max_items: int = 256, max_bytes: int = ...) -> Page | list[Need] | None:
        """A `Page` if there are results, a list of `Need` if pages are missing, None at the end."""
    def needs(self) -> list[Need]:
        """What is wanted now: a list of `Need`."""
    def token(self) -> bytes:
        """A token to resume the query later, at most 64 KiB."""
    def explain(self) -> str:
        """What the query will do, for people."""
    def source_name(self, number: int) -> bytes | None:
        """Name of a source by its number; None if there is no such source."""
    @property
    def _handed(self) -> int: ...
    def _starved(self, source: Source | int, fetched: bool) -> None: ...
    @property
    def buffered_bytes(self) -> int:
        """Bytes of pages that are referenced, by results too."""
    @property
    def skipped(self) -> int:
        """Bad items that were left out so far."""

@final
class Source:
    """A source of a query."""

    @property
    def number(self) -> int:
        """Its number, as items have it."""
    @property
    def name(self) -> bytes:
        """Its name."""
    def enqueue(
        self,
        data: PageData,
        next: str | bytes | None = None,
        *,
        length: int | None = None,
        frames: Sequence[tuple[int, int]] | None = None,
        meta: Mapping[str, Sequence[int | tuple[int, int] | None]] | None = None,
    ) -> None:
        """See `Query.enqueue`."""
    def finish(self) -> None:
        """See `Query.finish`."""
    def watermark(self, *keys: Scalar) -> None:
        """See `Query.watermark`."""
    def replace(self, parts: Sequence[dict[str, Any]]) -> list[Source]:
        """See `Query.replace`."""
    def __hash__(self) -> int: ...

@final
class Need:
    """A page that the query asks for."""

    @property
    def source(self) -> Source:
        """The source of the page."""
    @property
    def continuation(self) -> bytes | None:
        """What names the page; None for a first one that needs no name."""
    @property
    def required(self) -> bool:
        """Whether the next result needs it; else it is a page ahead."""
    @property
    def bytes(self) -> int:
        """Suggested size in bytes."""

@final
class PageBuffer:
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Page(Sequence[Item]):
    """Results of a query, in order: a sequence of items, at least one. Immutable; keeps the pages
    that its items lie in, also after the query is gone, for any thread.
    """

    def values(self, *paths: str) -> list[tuple[memoryview | None, ...]]:
        """The values at up to 64 singular JSONPaths in each item, in one walk over each: a list with a
        tuple for each item, of a memoryview for each path, in the order of the paths; None where there is
        nothing, and throughout for an item that is not JSON on the way. The views are not copied and keep
        the page.
        """
    @property
    def buffers(self) -> list[PageBuffer]:
        """The buffers that the items lie in; each a buffer of its own."""
    @property
    def spans(self) -> list[tuple[int, int, int]]:
        """Of each item its place: number of the buffer, first byte, length."""
    @property
    def skipped(self) -> int:
        """Bad items that were left out so far, in the whole query."""
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Item]: ...
    def __iter__(self) -> Iterator[Item]: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Item:
    """One result: the bytes of a JSON value, in the page they came in. Immutable; a buffer that is
    not copied and keeps its page.
    """

    @property
    def source(self) -> int | None:
        """Number of the source it came from; None for one that the engine made (a group, an
        aggregate).
        """
    @property
    def index(self) -> int:
        """Its number among all items of its page, from 0."""
    @property
    def page_number(self) -> int:
        """The number of its page within its source, from 0."""
    @property
    def constructed(self) -> bool:
        """Whether the engine made it."""
    def text(self) -> str:
        """The JSON text."""
    def json(self, loads: Callable[[Any], Any] | None = None) -> Any:
        """The value decoded; `loads` takes a memoryview (`json.loads` gets bytes)."""
    def get(self, path: str, default: object = None) -> Any:
        """The scalar at a singular JSONPath, decoded; an array or object as an item, not copied;
        `default` where there is nothing. Reads no further than it has to.
        """
    def find_raw(self, path: str) -> Item | None:
        """The value at a singular JSONPath as an item, whatever it is, not copied; None where there
        is nothing.
        """
    def __bytes__(self) -> bytes: ...
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class TopicQuery:
    """A query over topics that runs: an iterator of pages. Used by one thread at a time, but for
    `cancel`. Pages outlive it.
    """

    def next(
        self,
        timeout: float | None = None,
        *,
        max_items: int = 256,
        max_bytes: int = ...,
    ) -> Page | None:
        """The next results, with limits of their number and, approximately, their bytes. Returns None at
        the end, or if a query that follows has no result for `timeout` seconds (None: no limit).
        """
    def topic(self, source: int | None) -> str | None:
        """The topic of a result, by the number of its source; None for a result that the query
        computed.
        """
    def token(self) -> bytes:
        """A token with which a later query resumes after the last result."""
    def explain(self) -> str:
        """A description of the query, for people."""
    @property
    def as_of(self) -> int | None:
        """The last intention that the query reads; None if it follows."""
    @property
    def skipped(self) -> int:
        """Number of items that were skipped because they are not JSON."""
    def cancel(self) -> None:
        """Cancels the query, from any thread: waiting calls raise ClientError CANCELLED."""
    def __iter__(self) -> TopicQuery: ...
    def __next__(self) -> Page: ...

PageData = bytes | bytearray | memoryview | str | Buffer
Op = Put | Delete | Transaction | Create | Alter | Destroy
AnyWork = Work | tuple[int, int]
