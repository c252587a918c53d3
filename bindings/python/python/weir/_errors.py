"""The classes of errors, and the only place that creates them.

A verdict other than VALID is a value, not an error. An error means that nothing was tried, or that
the outcome is unknown. Numbers and names are the same in every language (`docs/formats/errors.md`).
"""

from __future__ import annotations

from typing import Literal

Retry = Literal["yes", "after", "no"]


class WeirError(Exception):
    """The root of all errors of this package."""

    code: str
    """The name of the error, such as "CLOSED"."""
    number: int
    """The number of the error, the same in every language."""
    retry: Retry
    """Whether a retry can succeed: at once, after the advice was followed, or never."""
    advice: str
    """A recommended action, one sentence; may be empty."""

    def __init__(
        self, message: str, *, code: str, number: int, retry: Retry, advice: str = ""
    ) -> None:
        super().__init__(message)
        self.code = code
        self.number = number
        self.retry = retry
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.code}: {self.args[0]}"

    def __reduce__(self) -> tuple[object, ...]:
        # By default, a copy would call the class with `args` only: other processes could not
        # read the error.
        return _restore, (type(self), self.args), self.__dict__


def _restore(kind: type[WeirError], args: tuple[object, ...]) -> WeirError:
    """Creates the error of which a copy or a pickle was made, without its attributes."""
    return kind.__new__(kind, *args)


class VerdictError(WeirError):
    """A verdict other than VALID where VALID was required, as by `Verdict.check`."""


class RefusalError(WeirError):
    """The store did not accept the intention: nothing was logged."""

    expected: int | None = None
    """For a nonce of a session: the next nonce that would be executed."""


class StoreError(WeirError):
    """The store could not be opened, read or written, or is closed."""


class ClientError(WeirError):
    """An error that this side of a connection detected, or an error in an option."""


class QueryError(WeirError):
    """An error of a query, of a page that was enqueued, or of a budget of the query."""

    source: int | None = None
    """Number of the source, if one was involved."""
    source_name: str | None = None
    """The name of that source."""
    page: int | None = None
    """The number of the page within its source, from 0."""
    item: int | None = None
    """The number of the item within its source, from 0."""
    offset: int | None = None
    """The first wrong byte: of the page, or of the text of the query."""
    field: str | None = None
    """The field of the query that has the wrong text."""


class InternalError(WeirError):
    """A bug in Weir. Please report it."""


_CLASSES: dict[str, type[WeirError]] = {
    "invalid": VerdictError,
    "error": VerdictError,
    "refusal": RefusalError,
    "store": StoreError,
    "client": ClientError,
    "query": QueryError,
    "internal": InternalError,
}

_Position = tuple[int | None, str | None, int | None, int | None, int | None, str | None]


def make(
    fields: tuple[str, int, str, Retry, str, str], position: _Position, expected: int | None
) -> WeirError:
    """Creates the exception for an error; called by the native module."""
    code, number, kind, retry, message, advice = fields
    error = _CLASSES.get(kind, WeirError)(
        message, code=code, number=number, retry=retry, advice=advice
    )
    if isinstance(error, RefusalError):
        error.expected = expected
    if isinstance(error, QueryError):
        (
            error.source,
            error.source_name,
            error.page,
            error.item,
            error.offset,
            error.field,
        ) = position
    return error
