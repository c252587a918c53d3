"""What schemathesis must be told about the HTTP edge beyond its description."""

import schemathesis


@schemathesis.serializer("application/wasm")
def wasm(_context, value):
    """A module is sent as it is, also when it is none."""
    return value if isinstance(value, bytes) else str(value).encode()


@schemathesis.serializer("application/x-ndjson", "application/json-seq")
def lines(_context, value):
    """The text of a list of events is sent as it is."""
    return value if isinstance(value, bytes) else str(value).encode()


@schemathesis.hook
def before_call(_context, case, _kwargs):
    """Cases of the coverage phase pass by the filter below: they are sent without waiting."""
    if case.query:
        if case.query.get("live") in ("sse", "long-poll"):
            case.query.pop("live")
        case.query.pop("wait", None)


@schemathesis.hook
def filter_query(_context, query):
    """Reads that wait, and tails, are for the tests of the server: nobody writes here meanwhile."""
    query = query or {}
    waits = query.get("wait") not in (None, 0, "0")
    return not waits and query.get("live") not in ("sse", "long-poll")
