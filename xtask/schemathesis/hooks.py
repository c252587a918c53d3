"""Facts about the HTTP API that schemathesis needs beyond its description."""

import schemathesis


@schemathesis.serializer("application/wasm")
def wasm(_context, value):
    """Sends a module unchanged, also if it is invalid."""
    return value if isinstance(value, bytes) else str(value).encode()


@schemathesis.serializer("application/x-ndjson", "application/json-seq")
def lines(_context, value):
    """Sends the text of a list of events unchanged."""
    return value if isinstance(value, bytes) else str(value).encode()


@schemathesis.hook
def before_call(_context, case, _kwargs):
    """Removes waits from cases of the coverage phase, to which the filter below does not apply."""
    if case.query:
        if case.query.get("live") in ("sse", "long-poll"):
            case.query.pop("live")
        case.query.pop("wait", None)


@schemathesis.hook
def filter_query(_context, query):
    """Skips reads that wait, because no client writes here. The tests of the server cover them."""
    query = query or {}
    waits = query.get("wait") not in (None, 0, "0")
    return not waits and query.get("live") not in ("sse", "long-poll")
