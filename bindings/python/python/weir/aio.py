"""A store for asyncio: no call blocks the event loop.

    async with await weir.aio.open("data") as store:
        orders = store.topic("orders")
        await orders.ensure()
        verdict = await orders.put("4711", b'{"state":"open"}')
        async for page in orders.follow_pages(start=True, timeout=1.0):
            ...

A write that waits occupies no thread. Reads run in up to 32 threads of this package. If the task of
a write is cancelled, the write may still be executed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from os import PathLike
from types import TracebackType
from typing import Any, Literal

from . import _pool, _weir
from ._weir import (
    Alter,
    Create,
    Delete,
    Destroy,
    Expect,
    GroupInfo,
    Page,
    Pending,
    Put,
    Record,
    RecordPage,
    TopicInfo,
    Transaction,
    Verdict,
    Work,
)

__all__ = [
    "Group",
    "Session",
    "Store",
    "Topic",
    "TopicQuery",
    "connect",
    "open",
    "received",
    "settle",
]

Data = bytes | bytearray | memoryview | str
Value = Data | dict[str, Any] | list[Any]
Op = Put | Delete | Transaction | Create | Alter | Destroy

_SLICE = 0.1
"""Seconds for which a listener occupies a thread before other calls may use it."""

_QUEUED_BYTES = 1 << 20
"""Size in bytes above which a thread sends the intentions, because the queue may be full."""


def _size(value: Value) -> int:
    """The size of a value in bytes. A value for JSON counts as large enough for a thread."""
    return _QUEUED_BYTES + 1 if isinstance(value, (dict, list)) else len(value)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


Notify = Callable[[Callable[[asyncio.Future[None]], object], asyncio.Future[None]], None]


async def _wait_for_notification(notify: Notify) -> None:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def on_answer(future: asyncio.Future[None]) -> None:
        loop.call_soon_threadsafe(_wake, future)

    notify(on_answer, future)
    await future


async def settle(pending: Pending) -> list[Verdict]:
    """Waits for the verdicts of sent intentions."""
    while not pending.done:
        # A notification for another task, such as one in `received`, also ends this wait.
        await _wait_for_notification(pending.notify)
    return pending.wait()


async def received(pending: Pending) -> None:
    """Waits until each intention is queued or has a verdict; see `Pending.wait_received`."""
    while not pending.wait_received(0.0):
        await _wait_for_notification(pending.notify_received)


async def open(
    path: str | PathLike[str],
    *,
    durability: Literal["group", "each", "interval", "memory"] = "group",
    interval_ms: int = 1000,
    create: bool = True,
    program: str | None = None,
    snapshot_log_bytes: int | None = None,
    log_segment_bytes: int | None = None,
    key_bytes_max: int | None = None,
    value_bytes_max: int | None = None,
    or_connect: bool = False,
) -> Store:
    """Opens the store in a directory; see `weir.open`."""
    store = await _pool.run(
        _weir.open,
        path,
        durability=durability,
        interval_ms=interval_ms,
        create=create,
        program=program,
        snapshot_log_bytes=snapshot_log_bytes,
        log_segment_bytes=log_segment_bytes,
        key_bytes_max=key_bytes_max,
        value_bytes_max=value_bytes_max,
        or_connect=or_connect,
    )
    return Store(store)


async def connect(
    url: str,
    *,
    token: str | None = None,
    authority: None | str | PathLike[str] = None,
    identity: tuple[str | PathLike[str], str | PathLike[str]] | None = None,
    agent: str | None = None,
    connect_timeout: float = 5.0,
    patience: float = 30.0,
    received: bool = False,
) -> Store:
    """Connects to a server; see `weir.connect`."""
    store = await _pool.run(
        _weir.connect,
        url,
        token=token,
        authority=authority,
        identity=identity,
        agent=agent,
        connect_timeout=connect_timeout,
        patience=patience,
        received=received,
    )
    return Store(store)


class Store:
    """A store for event loops; `blocking` is the store that it wraps."""

    def __init__(self, blocking: _weir.Store) -> None:
        self.blocking = blocking

    def topic(self, name: str) -> Topic:
        """A handle of a topic. Costs nothing."""
        return Topic(self.blocking.topic(name))

    def with_consistency(self, consistency: Literal["local", "leader", "linear"]) -> Store:
        """A second handle with a consistency of reads; see `weir.Store.with_consistency`."""
        return Store(self.blocking.with_consistency(consistency))

    async def topics(self, *, destroyed: bool = False) -> list[TopicInfo]:
        """All existing topics, or with `destroyed` also the destroyed ones, by name."""
        return await _pool.run(self.blocking.topics, destroyed=destroyed)

    async def batch(self, intentions: Sequence[tuple[str, Op]]) -> list[Verdict]:
        """Executes several intentions in one call; see `weir.Store.batch`."""
        return await settle(await _pool.run(self.blocking.send, list(intentions)))

    async def send(self, intentions: Sequence[tuple[str, Op]]) -> Pending:
        """Sends the intentions; `received` and `settle` wait for their outcome."""
        return await _pool.run(self.blocking.send, list(intentions))

    def query(self, *topics: str, **options: Any) -> TopicQuery:
        """The pages of a query over topics; see `weir.Store.query`."""
        return TopicQuery(self.blocking, topics, options)

    async def session(self, client: bytes) -> Session:
        """A writer whose intentions are executed exactly once; see `weir.Store.session`."""
        return Session(await _pool.run(self.blocking.session, client))

    async def sync(self) -> None:
        """Makes every acknowledged write durable."""
        await _pool.run(self.blocking.sync)

    async def close(self) -> None:
        """Closes the store. A second call is a no-op."""
        await _pool.run(self.blocking.close)

    async def __aenter__(self) -> Store:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


class TopicQuery:
    """A query over topics for event loops: an asynchronous iterator of pages. It starts when the
    first page is requested."""

    def __init__(
        self, store: _weir.Store, topics: tuple[str, ...], options: dict[str, Any]
    ) -> None:
        self._started: list[_weir.TopicQuery] = []
        self._pages = _pages(self._started, store, topics, options)

    @property
    def blocking(self) -> _weir.TopicQuery | None:
        """The wrapped query; None before the first page is requested."""
        return self._started[0] if self._started else None

    def topic(self, source: int | None) -> str | None:
        """The topic of a result of a page; see `weir.TopicQuery.topic`."""
        query = self.blocking
        return None if query is None else query.topic(source)

    async def aclose(self) -> None:
        """Ends the iteration."""
        await self._pages.aclose()

    def __aiter__(self) -> TopicQuery:
        return self

    async def __anext__(self) -> Page:
        return await anext(self._pages)


async def _pages(
    started: list[_weir.TopicQuery],
    store: _weir.Store,
    topics: tuple[str, ...],
    options: dict[str, Any],
) -> AsyncGenerator[Page, None]:
    """The pages of a query, which this generator starts and appends to `started`."""
    query = await _pool.run(store.query, *topics, **options)
    started.append(query)
    if not options.get("follow"):
        while (page := await _pool.run(query.next)) is not None:
            yield page
        return
    while (page := (await _repeat_until(query._step, None) or (None,))[0]) is not None:
        yield page


class Topic:
    """A topic for event loops; `blocking` is the topic that it wraps."""

    def __init__(self, blocking: _weir.Topic) -> None:
        self.blocking = blocking

    @property
    def name(self) -> str:
        """The name of the topic."""
        return self.blocking.name

    async def _write(self, ops: list[Op], size: int) -> list[Verdict]:
        pending = self.blocking._try_send(ops) if size <= _QUEUED_BYTES else None
        if pending is None:
            pending = await _pool.run(self.blocking.send, ops)
        return await settle(pending)

    async def create(self, **options: Any) -> Verdict:
        """Creates the topic; see `weir.Topic.create`."""
        return (await self._write([Create(**options)], 0))[0]

    async def ensure(self) -> bool:
        """Creates the topic if it does not exist. Returns whether this call created it."""
        return await _pool.run(self.blocking.ensure)

    async def alter(self, **options: Any) -> Verdict:
        """Replaces the options; see `weir.Topic.create`."""
        return (await self._write([Alter(**options)], 0))[0]

    async def replace(
        self, program: Data, args: Data = b"", *, expected: bytes | None = None
    ) -> Verdict:
        """Replaces the program of the topic; see `weir.Topic.replace`."""
        return await _pool.run(self.blocking.replace, program, args, expected=expected)

    async def destroy(self) -> Verdict:
        """Destroys the topic."""
        return (await self._write([Destroy()], 0))[0]

    async def info(self) -> TopicInfo | None:
        """The current state of the topic; None if it was never created."""
        return await _pool.run(self.blocking.info)

    async def append(self, value: Value, *, meta: Data = b"") -> Verdict:
        """Appends a record without a key."""
        return (await self._write([Put(b"", value, meta=meta)], _size(value)))[0]

    async def put(self, key: Data, value: Value, *, meta: Data = b"") -> Verdict:
        """Appends a record and sets its key."""
        return (await self._write([Put(key, value, meta=meta)], _size(value)))[0]

    async def put_if(
        self, key: Data, value: Value, expect: Iterable[Expect], *, meta: Data = b""
    ) -> Verdict:
        """Puts the record if all conditions hold; see `weir.Topic.put_if`."""
        put = Put(key, value, expect=list(expect), meta=meta)
        return (await self._write([put], _size(value)))[0]

    async def delete(
        self, key: Data, *, expect: Iterable[Expect] = (), meta: Data = b""
    ) -> Verdict:
        """Deletes a key. The verdict is VALID even if the key has no value."""
        return (await self._write([Delete(key, expect=list(expect), meta=meta)], 0))[0]

    async def batch(self, ops: Iterable[Op]) -> list[Verdict]:
        """Executes several intentions in one call; returns one verdict for each."""
        return await settle(await _pool.run(self.blocking.send, list(ops)))

    async def transaction(
        self, ops: Iterable[Put | Delete], *, expect: Iterable[Expect] = ()
    ) -> Verdict:
        """Executes all steps, in order, or none."""
        whole = Transaction(list(ops), expect=list(expect))
        return (await settle(await _pool.run(self.blocking.send, [whole])))[0]

    async def get(self, key: Data) -> Record | None:
        """The record with the current value of a key; None if there is none."""
        return await _pool.run(self.blocking.get, key)

    async def at(self, offset: int) -> Record | None:
        """The record at an offset; None if it does not exist."""
        return await _pool.run(self.blocking.at, offset)

    async def pages(
        self,
        position: str | int | None = None,
        *,
        after: int | None = None,
        last: int | None = None,
        time_ms: int | None = None,
    ) -> AsyncIterator[RecordPage]:
        """Pages of records up to the newest record; see `weir.Topic.pages`."""
        reader = await _pool.run(
            self.blocking.pages, position, after=after, last=last, time_ms=time_ms
        )
        while (page := await _pool.run(reader.next_page)) is not None:
            yield page

    async def records(
        self,
        position: str | int | None = None,
        *,
        after: int | None = None,
        last: int | None = None,
        time_ms: int | None = None,
    ) -> AsyncIterator[Record]:
        """Records up to the newest record."""
        async for page in self.pages(position, after=after, last=last, time_ms=time_ms):
            for record in page:
                yield record

    async def follow_pages(
        self,
        position: str | int | None = None,
        *,
        after: int | None = None,
        last: int | None = None,
        time_ms: int | None = None,
        start: bool = False,
        timeout: float | None = None,
    ) -> AsyncIterator[RecordPage]:
        """Pages of existing and new records; see `weir.Topic.follow_pages`."""
        reader = await _pool.run(
            self.blocking.follow_pages,
            position,
            after=after,
            last=last,
            time_ms=time_ms,
            start=start,
        )
        while (page := await _repeat_until(reader.next_page, timeout)) is not None:
            yield page

    async def follow(
        self,
        position: str | int | None = None,
        *,
        after: int | None = None,
        last: int | None = None,
        time_ms: int | None = None,
        start: bool = False,
        timeout: float | None = None,
    ) -> AsyncIterator[Record]:
        """Existing and new records; see `weir.Topic.follow_pages`."""
        pages = self.follow_pages(
            position, after=after, last=last, time_ms=time_ms, start=start, timeout=timeout
        )
        async for page in pages:
            for record in page:
                yield record

    async def latest(self, *, timeout: float | None = 0.0) -> AsyncIterator[Record]:
        """The current values, then new records; see `weir.Topic.latest`."""
        # A timeout that is not a time is an error here.
        valid = timeout is None or timeout >= 0
        latest = await _pool.run(self.blocking.latest, timeout=0.0 if valid else timeout)

        def step(patience: float) -> Record | None:
            return next(latest, None)

        while (record := await _repeat_until(step, timeout)) is not None:
            yield record

    async def keys(
        self, prefix: Data = b"", *, after: Data | None = None, limit: int | None = None
    ) -> list[tuple[bytes, int]]:
        """Keys with a value, in byte order, each with the offset of its record."""
        keys = self.blocking.keys(prefix, after=after, limit=limit)
        return await _pool.run(list, keys)

    async def group(
        self,
        name: str,
        mode: Literal["shared", "keyed", "exclusive"] = "shared",
        **options: Any,
    ) -> Group:
        """A member of a group; see `weir.Topic.group`."""
        return Group(await _pool.run(self.blocking.group, name, mode, **options))

    async def groups(self) -> list[GroupInfo]:
        """The groups of the topic, by name."""
        return await _pool.run(self.blocking.groups)


class Session:
    """A writer whose intentions are executed exactly once; `blocking` is the wrapped session."""

    def __init__(self, blocking: _weir.Session) -> None:
        self.blocking = blocking

    async def next_nonce(self) -> int:
        """The number of the next intention."""

        def read_nonce() -> int:
            return self.blocking.next_nonce

        return await _pool.run(read_nonce)

    async def resume(self, nonce: int) -> None:
        """Sets the next nonce back to one without an answer."""
        await _pool.run(self.blocking.resume, nonce)

    async def execute(self, intentions: Sequence[tuple[str, Op]]) -> list[Verdict]:
        """Sends intentions with the next nonces and waits for their verdicts."""
        return await settle(await _pool.run(self.blocking.send, list(intentions)))


class Group:
    """A member of a group for event loops; `blocking` is the member that it wraps."""

    def __init__(self, blocking: _weir.Group) -> None:
        self.blocking = blocking

    async def claim(self, max: int = 100, timeout: float | None = 0.0) -> list[Work]:
        """Claims up to `max` records; waits up to `timeout` seconds for the first one. If a claim
        is cancelled, the next claim returns its records first."""
        available = await _repeat_until(
            lambda patience: self.blocking._fetch(max, patience) or None, timeout
        )
        return self.blocking._take(max) if available else []

    async def ack(self, work: Iterable[Work]) -> list[int]:
        """Acknowledges records; see `weir.Group.ack`."""
        return await _pool.run(self.blocking.ack, list(work))

    async def nack(
        self, work: Iterable[Work], *, delay: float = 0.0, reason: str = ""
    ) -> list[int]:
        """Returns records to the group; see `weir.Group.nack`."""
        return await _pool.run(self.blocking.nack, list(work), delay=delay, reason=reason)

    async def extend(self, work: Iterable[Work], lease: float) -> list[int]:
        """Extends the leases of records; see `weir.Group.extend`."""
        return await _pool.run(self.blocking.extend, list(work), lease)

    async def ack_soon(self, work: Iterable[Work]) -> None:
        """Acknowledges records of an exclusive group; written later."""
        await _pool.run(self.blocking.ack_soon, list(work))

    async def take_over(self) -> None:
        """Makes this member the owner of an exclusive group and replaces the present owner."""
        await _pool.run(self.blocking.take_over)

    async def reset(
        self,
        position: str | int | None = None,
        *,
        after: int | None = None,
        last: int | None = None,
        time_ms: int | None = None,
        end: bool = False,
    ) -> Verdict:
        """Moves the group to a position; see `weir.Group.reset`."""
        return await _pool.run(
            self.blocking.reset, position, after=after, last=last, time_ms=time_ms, end=end
        )

    async def delete(self) -> Verdict:
        """Deletes the group and its position."""
        return await _pool.run(self.blocking.delete)

    async def leave(self) -> None:
        """Gives up the ownership of an exclusive group."""
        await _pool.run(self.blocking.leave)

    async def info(self) -> GroupInfo:
        """The current state of the group."""
        return await _pool.run(self.blocking.info)


async def _repeat_until(step: Callable[[float], Any | None], timeout: float | None) -> Any | None:
    """Repeats a step until it returns a value or the time is over. A step blocks up to `_SLICE` s.

    A cancelled task waits for the end of its running step, which is short. The wrapped object can
    then be used again at once.
    """
    if timeout is not None and not timeout >= 0:
        return await _pool.run(step, timeout)  # raises BAD_OPTION
    loop = asyncio.get_running_loop()
    end = None if timeout is None else loop.time() + timeout
    while True:
        remaining = _SLICE if end is None else min(_SLICE, max(0.0, end - loop.time()))
        found = await _pool.run_to_completion(step, remaining)
        if found is not None:
            return found
        if end is not None and loop.time() >= end:
            return None
