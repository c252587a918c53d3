"""The classes of errors, and the one place where they are made.

A verdict that is not VALID is a value, not an error. An error means that nobody knows, or that
nothing was tried. Numbers and names are the same in every language (`docs/formats/errors.md`).
"""

from __future__ import annotations

from typing import Literal

Retry = Literal["yes", "after", "no"]


class WeirError(Exception):
    """The root of all errors of this package."""

    code: str
    """Its name, such as "CLOSED"."""
    number: int
    """Its number, the same in every language."""
    retry: Retry
    """Whether the same again can help: at once, after the advice was followed, never."""
    advice: str
    """What to try, one sentence; may be empty."""

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


class VerdictError(WeirError):
    """A verdict that is not VALID where one was required, as by `Verdict.check`."""


class RefusalError(WeirError):
    """The store did not take it: nothing was logged."""

    expected: int | None = None
    """For a nonce of a session: the next one that would be executed."""


class StoreError(WeirError):
    """The store could not be opened, read or written, or is closed."""


class ClientError(WeirError):
    """Found out on this side of a connection, or about an option."""


class QueryError(WeirError):
    """Of a query, a page it was given, or what it would have to hold."""

    source: int | None = None
    """Number of the source, if one was involved."""
    source_name: str | None = None
    """The name of that source."""
    page: int | None = None
    """The number of the page within its source, from 0."""
    item: int | None = None
    """The number of the item within its source, from 0."""
    offset: int | None = None
    """The first byte that is wrong: of the page, or of the text of the query."""
    field: str | None = None
    """Which field of the query the text is of."""


class InternalError(WeirError):
    """A mistake of Weir. Please tell us."""


_CLASSES: dict[str, type[WeirError]] = {
    "invalid": VerdictError,
    "error": VerdictError,
    "refusal": RefusalError,
    "store": StoreError,
    "client": ClientError,
    "query": QueryError,
    "internal": InternalError,
}

_Place = tuple[int | None, str | None, int | None, int | None, int | None, str | None]


def make(
    what: tuple[str, int, str, Retry, str, str], place: _Place, expected: int | None
) -> WeirError:
    """Makes the exception for an error; called by the native module."""
    code, number, kind, retry, message, advice = what
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
        ) = place
    return error
