"""Types of the native module, with the first paragraph of each of its docstrings, for editors."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import Any, Literal, TypeVar, final, overload

Data = bytes | bytearray | memoryview | str
Value = Data | dict[str, Any] | list[Any]
"""A value to be written: bytes or text unchanged, a dict or list as JSON."""
AnyPath = str | PathLike[str]
Effect = Literal["VALID", "INVALID", "ERROR"]
Durability = Literal["group", "each", "interval", "memory"]
GroupMode = Literal["shared", "keyed", "exclusive"]
Consistency = Literal["local", "leader", "linear"]
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
    key_bytes_max: int | None = None,
    value_bytes_max: int | None = None,
    or_connect: bool = False,
) -> Store:
    """Opens the store in a directory, or creates one."""
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
    """The final result of one intention. True if it is VALID."""

    @property
    def effect(self) -> Effect:
        """"VALID", "INVALID" or "ERROR"."""
    @property
    def valid(self) -> bool:
        """Whether the intention was executed."""
    @property
    def reason(self) -> str | None:
        """Why the verdict is not VALID: the name of an error, such as "CONFLICT"; None for VALID.
        """
    @property
    def number(self) -> int | None:
        """The number of the reason; None for VALID."""
    @property
    def detail(self) -> dict[str, int | str] | None:
        """More about the reason, by name: `actual` (the offset that a condition found), `limit`,
        `index` and `reason` (of a transaction), `code` and `text` (of a program), `trap`. None if
        there are no details.
        """
    @property
    def intention(self) -> int:
        """Position of the intention in the global order. Every verdict has one."""
    @property
    def offset(self) -> int | None:
        """Offset of the first record of the intention; None if it wrote none."""
    @property
    def records(self) -> int:
        """Number of records of the intention."""
    @property
    def replayed(self) -> bool:
        """Whether the store returned the recorded verdict of an earlier request with this nonce."""
    @property
    def fuel(self) -> int:
        """Fuel that the program of the topic used; 0 without a program."""
    def check(self) -> Verdict:
        """Returns the verdict if it is VALID; otherwise raises `VerdictError`."""
    def __bool__(self) -> bool: ...

@final
class Put:
    """Appends a record; with a key, sets the value of the key."""

    def __new__(
        cls, key: Data, value: Value, *, expect: Sequence[Expect] = (), meta: Data = b""
    ) -> Put: ...

@final
class Delete:
    """Deletes a key. The verdict is VALID even if the key has no value."""

    def __new__(cls, key: Data, *, expect: Sequence[Expect] = (), meta: Data = b"") -> Delete: ...

@final
class Transaction:
    """Executes all steps, in order, or none. A step is a `Put` or `Delete` without conditions."""

    def __new__(
        cls, ops: Sequence[Put | Delete], *, expect: Sequence[Expect] = ()
    ) -> Transaction: ...
    @property
    def ops(self) -> list[Put | Delete]:
        """The steps."""

@final
class Create:
    """Creates a topic."""

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
    """Destroys a topic."""

    def __new__(cls) -> Destroy: ...

@final
class Expect:
    """A condition on the state of the topic. If a condition fails, the verdict is INVALID with the
    reason CONFLICT. A `key` of None is the key of the intention.
    """

    @staticmethod
    def key_offset(offset: int, key: Data | None = None) -> Expect:
        """The current value of the key was written at this offset."""
    @staticmethod
    def key_absent(key: Data | None = None) -> Expect:
        """The key has no value."""
    @staticmethod
    def key_present(key: Data | None = None) -> Expect:
        """The key has a value."""
    @staticmethod
    def topic_offset(offset: int) -> Expect:
        """The last record of the topic has this offset."""
    @staticmethod
    def topic_absent_or(offset: int) -> Expect:
        """The topic does not exist, or its last record has this offset."""
    @staticmethod
    def topic_empty() -> Expect:
        """The topic exists and has no record after the one that created it."""
    @staticmethod
    def incarnation(intention: int) -> Expect:
        """The intention with this offset created the topic."""

@final
class Pending:
    """Verdicts that have not arrived yet, returned by `send`. Dropping it does not cancel the
    intentions.
    """

    @property
    def done(self) -> bool:
        """Whether `wait` would return at once."""
    def wait(self, timeout: float | None = None) -> list[Verdict]:
        """Waits for the verdicts up to `timeout` seconds. Returns them in the order of the
        intentions.
        """
    def wait_received(self, timeout: float | None = None) -> bool:
        """Waits up to `timeout` seconds until every intention is queued for the log or has a
        verdict. A queued intention can still be lost. Returns False if the time is over.
        """
    def notify_received(self, call: Callable[[D], object], argument: D) -> None:
        """Calls `call(argument)` once, from another thread, when `wait_received` would not block,
        or earlier.
        """
    def notify(self, call: Callable[[D], object], argument: D) -> None:
        """Calls `call(argument)` once, from another thread, when `wait` would not block, or
        earlier: check `done`.
        """

@final
class Session:
    """A writer whose intentions are executed exactly once, even if they are sent again after a
    crash. One session at a time may use a client id.
    """

    @property
    def client(self) -> bytes:
        """The client id, 16 bytes."""
    @property
    def next_nonce(self) -> int:
        """The number of the next intention: one more than the last one that was sent, or that the
        store has recorded.
        """
    def resume(self, nonce: int) -> None:
        """Resumes at a nonce without an answer. For intentions that it has already executed, the
        store returns the recorded verdicts; it executes the others.
        """
    def send(self, intentions: Sequence[tuple[str, Op]]) -> Pending:
        """Sends intentions with the next nonces, and does not wait for the verdicts. Each intention
        is a topic and a `Put` or `Delete`.
        """
    def execute(self, intentions: Sequence[tuple[str, Op]]) -> list[Verdict]:
        """Sends intentions and waits for their verdicts."""

@final
class Store:
    """An event store, in a directory that this process has open or at a server. Threads may share
    it. A context manager that closes the store.
    """

    @property
    def durability(self) -> Durability:
        """The durability of an acknowledged write."""
    @property
    def id(self) -> str:
        """The id of the store, 32 hexadecimal digits."""
    @property
    def closed(self) -> bool:
        """Whether the store was closed here."""
    def topic(self, name: str) -> Topic:
        """A handle of a topic, which need not exist. Costs nothing."""
    def with_consistency(self, consistency: Consistency) -> Store:
        """A second handle of the store whose reads at a cluster have this consistency."""
    def topics(self, *, destroyed: bool = False) -> list[TopicInfo]:
        """All existing topics, or with `destroyed` also the destroyed ones, by name."""
    def batch(self, intentions: Sequence[tuple[str, Op]]) -> list[Verdict]:
        """Executes several intentions independently, in one call. Each is a topic and a `Put` or
        `Delete`. Returns one verdict for each, in order.
        """
    def send(self, intentions: Sequence[tuple[str, Op]]) -> Pending:
        """Sends the intentions as a batch and returns without waiting for the verdicts."""
    def session(self, client: bytes) -> Session:
        """A writer whose intentions are executed exactly once. `client` is 16 bytes that nobody
        else uses; the caller must store them for its next session.
        """
    def query(
        self,
        *topics: str,
        position: str | int | None = None,
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
        """Starts a query over topics: names, or patterns like "orders.*" (one more part of a name)
        and "orders.**" (any number of parts). An iterator of pages.
        """
    def sync(self) -> None:
        """Makes every acknowledged write durable, at any level."""
    def stats(self) -> dict[str, int]:
        """Counters since the store was opened, by name."""
    def close(self) -> None:
        """Completes queued writes and closes the store. A connection is closed after all requests
        are answered. Pages and records stay valid. A second call is a no-op, and so is a call in a
        forked process.
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
    """A handle of a topic. A write waits for its verdict; `send` does not."""

    @property
    def name(self) -> str:
        """The name of the topic."""
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
        """Creates the topic. If it exists, the verdict is INVALID with TOPIC_EXISTS."""
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
        """Replaces the program of the topic. With `expected`, only if the current program has this
        SHA-256.
        """
    def destroy(self) -> Verdict:
        """Destroys the topic and its keys. If it is created again, its offsets continue after the
        old ones.
        """
    def info(self) -> TopicInfo | None:
        """The current state of the topic; None if it was never created."""
    def append(self, value: Value, *, meta: Data = b"") -> Verdict:
        """Appends a record without a key."""
    def put(self, key: Data, value: Value, *, meta: Data = b"") -> Verdict:
        """Appends a record and sets its key. Ctrl-C ends the wait, not the write."""
    def put_if(
        self, key: Data, value: Value, expect: Sequence[Expect], *, meta: Data = b""
    ) -> Verdict:
        """Puts the record if all conditions hold. Otherwise the verdict is INVALID with CONFLICT,
        and `detail["actual"]` is the offset that was found.
        """
    def delete(self, key: Data, *, expect: Sequence[Expect] = (), meta: Data = b"") -> Verdict:
        """Deletes a key. The verdict is VALID even if the key has no value."""
    def batch(self, ops: Sequence[Op]) -> list[Verdict]:
        """Executes several intentions independently, in one call. Returns one verdict for each, in
        order. See also `transaction`.
        """
    def send(self, ops: Sequence[Op]) -> Pending:
        """Sends the operations as a batch and returns without waiting for the verdicts."""
    def _try_send(self, ops: Sequence[Op]) -> Pending | None: ...
    def transaction(
        self, ops: Sequence[Put | Delete], *, expect: Sequence[Expect] = ()
    ) -> Verdict:
        """Executes all steps, in order, or none. Conditions apply to the whole; each names its key.
        """
    def get(self, key: Data) -> Record | None:
        """The record with the current value of a key; None if there is none."""
    def at(self, offset: int) -> Record | None:
        """The record at an offset; None if it does not exist."""
    def keys(
        self, prefix: Data = b"", *, after: Data | None = None, limit: int | None = None
    ) -> Iterator[tuple[bytes, int]]:
        """Keys with a value, in byte order, each with the offset of its record: an iterator. Starts
        after the key `after`.
        """
    def pages(
        self,
        position: str | int | None = None,
        *,
        after: int | None = None,
        last: int | None = None,
        time_ms: int | None = None,
        end: bool = False,
    ) -> Reader:
        """Pages of records up to the newest record: an iterator."""
    def records(
        self,
        position: str | int | None = None,
        *,
        after: int | None = None,
        last: int | None = None,
        time_ms: int | None = None,
    ) -> Iterator[Record]:
        """Records up to the newest record: an iterator. Its start position is as for `pages`."""
    def follow(
        self,
        position: str | int | None = None,
        *,
        after: int | None = None,
        last: int | None = None,
        time_ms: int | None = None,
        start: bool = False,
        timeout: float | None = None,
    ) -> Iterator[Record]:
        """Existing and new records: an iterator that waits, like `follow_pages`."""
    def follow_pages(
        self,
        position: str | int | None = None,
        *,
        after: int | None = None,
        last: int | None = None,
        time_ms: int | None = None,
        start: bool = False,
        timeout: float | None = None,
    ) -> Reader:
        """Pages of new records: an iterator that waits. By default, it starts after the newest
        record. It ends if no record arrives for `timeout` seconds (None: no limit). The topic may
        be created later. Ctrl-C ends the wait.
        """
    def latest(self, *, timeout: float | None = 0.0) -> Latest:
        """The current record of each key, in byte order and marked `replay`; then new records, in
        order, until none arrives for `timeout` seconds: an iterator of records.
        """
    def group(
        self,
        name: str,
        mode: GroupMode = "shared",
        *,
        position: str | int | None = None,
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
        """Joins a group as a member. Creates the group if it does not exist. The topic must exist.
        """
    def groups(self) -> list[GroupInfo]:
        """The groups of the topic, by name."""

@final
class TopicInfo:
    """The state of a topic at the time of the call."""

    @property
    def name(self) -> str:
        """The name of the topic."""
    @property
    def live(self) -> bool:
        """Whether the topic exists."""
    @property
    def incarnation(self) -> int | None:
        """Offset of the intention that created the topic, if the topic exists."""
    @property
    def first(self) -> int:
        """Offset of the oldest retained record; 0 if there is none."""
    @property
    def last(self) -> int:
        """Offset of the newest record."""
    @property
    def keys(self) -> int:
        """Number of keys with a value."""
    @property
    def bytes(self) -> int:
        """Size of the stored records in bytes."""

@final
class Reader:
    """Pages of records of a topic, in order, each once: an iterator. One thread at a time may use
    it.
    """

    @property
    def position(self) -> int:
        """The next page starts at this offset, or at the first existing record after it."""
    @property
    def timeout(self) -> float | None:
        """Seconds that the iterator waits for a page; None: no limit."""
    def next_page(self, timeout: float | None = 0.0) -> RecordPage | None:
        """The next page; None if there is none within `timeout` seconds (None: no limit)."""
    def records(self) -> Iterator[Record]:
        """All records of the pages: an iterator, with the patience of this iterator."""
    def seek(self, after: int) -> None:
        """Continues at the first record after this offset."""
    def __iter__(self) -> Reader: ...
    def __next__(self) -> RecordPage: ...

@final
class Latest:
    """The current values, then new records: an iterator of records."""

    def __iter__(self) -> Latest: ...
    def __next__(self) -> Record: ...

@final
class RecordPage(Sequence[Record]):
    """Adjacent records, in order: a sequence. Immutable. Any thread may use it, also after the
    store is closed. A buffer of the whole block that contains the records.
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
    """A record: the entry of an intention in a topic. Immutable. A buffer of its value, which is
    not copied and lives as long as the record or a view of it.
    """

    @property
    def offset(self) -> int:
        """Position in the topic, from 1."""
    @property
    def intention(self) -> int:
        """Position of the intention in the global order."""
    @property
    def time_ms(self) -> int:
        """When the intention was proposed, in milliseconds since 1970-01-01 UTC."""
    @property
    def kind(self) -> Literal["PUT", "DELETE", "CREATE", "DESTROY", "ALTER", "REPLACE"]:
        """"PUT", "DELETE", "CREATE", "DESTROY", "ALTER" or "REPLACE"."""
    @property
    def key(self) -> bytes:
        """The key; empty if there is none."""
    @property
    def value(self) -> bytes:
        """The value, copied; `memoryview(record)` does not copy."""
    @property
    def meta(self) -> bytes:
        """Metadata, which the store does not interpret."""
    @property
    def client(self) -> bytes:
        """Id of the client that wrote the record, 16 bytes; all zeros without a session."""
    @property
    def nonce(self) -> int:
        """Number of the intention in its session; 0 without a session."""
    @property
    def transaction(self) -> bool:
        """Whether the record is part of a transaction."""
    @property
    def final_(self) -> bool:
        """Whether the record is the last one of its intention."""
    @property
    def replay(self) -> bool:
        """From `Topic.latest`: whether the record was written before the reading began."""
    def text(self) -> str:
        """The value as text."""
    def json(self, loads: Callable[[Any], Any] | None = None) -> Any:
        """The decoded value. `loads` gets a memoryview (`json.loads` gets bytes)."""
    def get(self, path: str, default: object = None) -> Any:
        """The scalar at a singular JSONPath in the value, decoded. An array or object is returned
        as bytes. Returns `default` if there is no value. Scans only as far as necessary.
        """
    def __bytes__(self) -> bytes: ...
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Group:
    """A member of a group. One thread at a time may use it."""

    @property
    def name(self) -> str:
        """The name of the group."""
    def claim(self, max: int = 100, timeout: float | None = 0.0) -> list[Work]:
        """Claims up to `max` records; waits up to `timeout` seconds for the first one (None: no
        limit). Ctrl-C ends the wait.
        """
    def _fetch(self, max: int, timeout: float | None) -> bool: ...
    def _take(self, max: int) -> list[Work]: ...
    def ack(self, work: Sequence[AnyWork]) -> list[int]:
        """Acknowledges records; the acknowledgement is durable when this returns. Returns the
        offsets of those that another member has claimed by now. In an exclusive group, this
        acknowledges every record up to the last one.
        """
    def ack_soon(self, work: Sequence[AnyWork]) -> None:
        """Acknowledges records of an exclusive group without waiting. The
        acknowledgement is written soon, together with later ones. After a crash the records may be
        delivered again.
        """
    def nack(
        self, work: Sequence[AnyWork], *, delay: float = 0.0, reason: str = ""
    ) -> list[int]:
        """Returns records to the group, which can deliver them again after `delay` seconds. Returns
        the offsets of those that another member has claimed by now.
        """
    def extend(self, work: Sequence[AnyWork], lease: float) -> list[int]:
        """Extends the leases of records: each now ends in `lease` seconds. Returns the offsets of
        those that this member no longer has.
        """
    def reset(
        self,
        position: str | int | None = None,
        *,
        after: int | None = None,
        last: int | None = None,
        time_ms: int | None = None,
        end: bool = False,
    ) -> Verdict:
        """Moves the group to a position, as for `Topic.pages`. All earlier records count as
        acknowledged, and all later ones as not acknowledged. Members lose the records that they have
        claimed.
        """
    def take_over(self) -> None:
        """Makes this member the owner of an exclusive group and replaces the present owner."""
    def leave(self) -> None:
        """Gives up the ownership of an exclusive group, so that another member need not wait."""
    def delete(self) -> Verdict:
        """Deletes the group and its position."""
    def info(self) -> GroupInfo:
        """The current state of the group."""

@final
class Work:
    """A claimed record."""

    @property
    def record(self) -> Record:
        """The record."""
    @property
    def name(self) -> tuple[int, int]:
        """The claim and the offset of the record, with which a member can acknowledge it later."""
    @property
    def attempts(self) -> int:
        """How often the record was delivered, including this time; 1 in an exclusive group."""

@final
class GroupInfo:
    """The state of a group at the time of the call."""

    @property
    def topic(self) -> str:
        """The topic of the group."""
    @property
    def name(self) -> str:
        """The name of the group."""
    @property
    def mode(self) -> GroupMode:
        """"shared", "keyed" or "exclusive"."""
    @property
    def cursor(self) -> int:
        """All records up to this offset are acknowledged."""
    @property
    def frontier(self) -> int:
        """No record after this offset was delivered."""
    @property
    def last(self) -> int:
        """Offset of the newest record of the topic."""
    @property
    def lag(self) -> int:
        """Number of offsets that are not acknowledged."""
    @property
    def leased(self) -> int:
        """Number of records that members have claimed."""
    @property
    def waiting(self) -> int:
        """Number of delivered records that are neither acknowledged nor claimed."""
    @property
    def redeliveries(self) -> int:
        """Number of deliveries beyond the first of a record."""
    @property
    def dead_lettered(self) -> int:
        """Number of records that became dead letters."""
    @property
    def unwritten_dead_letters(self) -> int:
        """Number of dead letters that are not written yet."""
    @property
    def lease_ms(self) -> int:
        """Length of a lease in milliseconds."""
    @property
    def attempts_max(self) -> int:
        """Number of deliveries after which a record becomes a dead letter; 0: never."""
    @property
    def dead_letters(self) -> str:
        """Topic for dead letters; empty if there is none."""

@final
class Query:
    """A query over pages of JSON: ordered merge, filter, groups, limits. It does no I/O: `next`
    returns the needed pages, and the caller fetches them. One thread at a time may use it.
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
        """Enqueues a page of a source. `next` names the next page; None: the page is the last."""
    def finish(self, source: Source | int) -> None:
        """Ends a source: it has no more pages."""
    def abandon(self, name: str | bytes) -> None:
        """Declares that a source of the query that returned the token no longer exists, so its
        remaining rows never arrive. While a source of that query is neither added nor abandoned,
        `next` raises QueryError SOURCES_OWED, which is not final.
        """
    def watermark(self, source: Source | int, *keys: Scalar) -> None:
        """Declares that a source has no more items below these order keys."""
    def replace(self, source: Source | int, parts: Sequence[dict[str, Any]]) -> list[Source]:
        """Replaces a source that was split by its parts, after its last enqueued page. Each part is
        a dict with the options of `add_source`.
        """
    def next(self, max_items: int = 256, max_bytes: int = ...) -> Page | list[Need] | None:
        """Returns a `Page` if there are results, a list of `Need` if pages are missing, None at the
        end.
        """
    def needs(self) -> list[Need]:
        """The pages that the query requests now: a list of `Need`."""
    def token(self) -> bytes:
        """A token with which a query resumes later, at most 64 KiB."""
    def explain(self) -> str:
        """A description of the execution, for people."""
    def source_name(self, number: int) -> bytes | None:
        """Name of a source by its number; None if there is no such source."""
    @property
    def _advanced(self) -> int: ...
    def _missing_page_error(self, source: Source | int, fetched: bool) -> None: ...
    @property
    def buffered_bytes(self) -> int:
        """Bytes of referenced pages, including those of results."""
    @property
    def skipped(self) -> int:
        """Number of bad items that were skipped so far."""

@final
class Source:
    """A source of a query."""

    @property
    def number(self) -> int:
        """The number of the source, which items refer to."""
    @property
    def name(self) -> bytes:
        """The name of the source."""
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
    """A page that the query requests."""

    @property
    def source(self) -> Source:
        """The source of the page."""
    @property
    def continuation(self) -> bytes | None:
        """The name of the page; None for a first page without a name."""
    @property
    def required(self) -> bool:
        """Whether the next result needs the page; otherwise it is a page ahead."""
    @property
    def bytes(self) -> int:
        """Suggested size in bytes."""

@final
class PageBuffer:
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Page(Sequence[Item]):
    """Results of a query, in order: a sequence of items, at least one. Immutable. It keeps the
    memory of its items alive, also after the query is released. Any thread may use it.
    """

    def values(self, *paths: str) -> list[tuple[memoryview | None, ...]]:
        """The values at up to 64 singular JSONPaths in each item, with one walk over each item.
        Returns a list with a tuple for each item. A tuple has a memoryview for each path, in the
        order of the paths, or None if there is no value. A tuple has only None if the scan finds
        that its item is not JSON. The views are not copied and keep the page alive.
        """
    @property
    def buffers(self) -> list[PageBuffer]:
        """The buffers that contain the items; each supports the buffer protocol."""
    @property
    def spans(self) -> list[tuple[int, int, int]]:
        """The position of each item: number of the buffer, first byte, length."""
    @property
    def skipped(self) -> int:
        """Number of bad items that the whole query has skipped so far."""
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Item]: ...
    def __iter__(self) -> Iterator[Item]: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Item:
    """One result: the bytes of a JSON value, in the page of its source. Immutable. A buffer that is
    not copied and keeps its page alive.
    """

    @property
    def source(self) -> int | None:
        """Number of the source of the item. None for an item that the engine created (a group, an
        aggregate).
        """
    @property
    def index(self) -> int:
        """Index of the item among all items of its page, from 0."""
    @property
    def page_number(self) -> int:
        """Number of the page of the item within its source, from 0."""
    @property
    def constructed(self) -> bool:
        """Whether the engine created the item."""
    def text(self) -> str:
        """The JSON text."""
    def json(self, loads: Callable[[Any], Any] | None = None) -> Any:
        """The decoded value. `loads` gets a memoryview (`json.loads` gets bytes)."""
    def get(self, path: str, default: object = None) -> Any:
        """The scalar at a singular JSONPath, decoded. An array or object is returned as an item,
        not copied. Returns `default` if there is no value. Scans only as far as necessary.
        """
    def find_raw(self, path: str) -> Item | None:
        """The value of any type at a singular JSONPath, as an item that is not copied; None if
        there is no value.
        """
    def __bytes__(self) -> bytes: ...
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class TopicQuery:
    """A running query over topics: an iterator of pages. One thread at a time may use it; any
    thread may call `cancel`. Pages outlive it.
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
    def _step(self, timeout: float) -> tuple[Page | None] | None: ...
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
