"""An event store, opened in your process or at a server, and ordered queries over JSON pages.

    import weir

    with weir.open("data") as store:
        orders = store.topic("orders")
        orders.ensure()
        verdict = orders.put("4711", {"state": "open"})
        for record in orders.records():
            print(record)

`weir.connect(url)` returns a store at a server. `weir.aio` has asynchronous forms. `weir.Query`
merges, filters and groups pages from any source.
"""

from __future__ import annotations

from . import aio
from ._errors import (
    ClientError,
    InternalError,
    QueryError,
    RefusalError,
    StoreError,
    VerdictError,
    WeirError,
)
from ._query import apages, pages
from ._weir import (
    Alter,
    Buffer,
    Create,
    Delete,
    Destroy,
    Expect,
    Group,
    GroupInfo,
    Item,
    Latest,
    Need,
    Page,
    Pending,
    Put,
    Query,
    Reader,
    Record,
    RecordPage,
    Session,
    Source,
    Store,
    Topic,
    TopicInfo,
    TopicQuery,
    Transaction,
    Verdict,
    Work,
    __version__,
    build_profile,
    connect,
    open,
)

aopen = aio.open
aconnect = aio.connect

__all__ = [
    "Alter",
    "Buffer",
    "ClientError",
    "Create",
    "Delete",
    "Destroy",
    "Expect",
    "Group",
    "GroupInfo",
    "InternalError",
    "Item",
    "Latest",
    "Need",
    "Page",
    "Pending",
    "Put",
    "Query",
    "QueryError",
    "Reader",
    "Record",
    "RecordPage",
    "RefusalError",
    "Session",
    "Source",
    "Store",
    "StoreError",
    "Topic",
    "TopicInfo",
    "TopicQuery",
    "Transaction",
    "Verdict",
    "VerdictError",
    "WeirError",
    "Work",
    "__version__",
    "aconnect",
    "aio",
    "aopen",
    "apages",
    "build_profile",
    "connect",
    "open",
    "pages",
]
