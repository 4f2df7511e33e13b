"""The messages of the control channel. Both ends are of one release, so there is nothing to negotiate."""

from typing import TypeAlias

import msgspec

from proxy.accesslog import AccessLogSettings
from proxy.tunnel.orders import EdgeOrder, EdgeReport


class Message(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """One packet."""


class Begin(Message, frozen=True):
    """The first message: what a worker has to know before it creates anything."""

    index: int
    log_level: str
    log_format: str
    access_log: AccessLogSettings


class TakeSockets(Message, frozen=True):
    """With one listening socket per door, in that order. They are served from the next document on, until a document no
    longer names the door."""

    doors: tuple[str, ...]


class TakeDocument(Message, frozen=True):
    """With a memory file: the changes to the document that is served. Build a table from it and use it."""

    generation: int
    """Rises with every message of this kind, whereas a version may come twice."""
    version: int
    since: int
    """The generation that the change builds on; 0 if on none, since the document is complete."""


class Report(Message, frozen=True):
    """Answer with a Snapshot."""


class ToEdge(Message, frozen=True):
    """About connections to the tunnel's edge. A dial comes with `DialMeans` as a memory file."""

    order: EdgeOrder


class Drain(Message, frozen=True):
    """Accept queued connections, close the listening sockets, unregister from the edge, finish what runs, and exit."""


class Cut(Message, frozen=True):
    """Reset what still runs, and exit."""


class Ready(Message, frozen=True):
    """The worker's loop is running."""


class Taken(Message, frozen=True):
    """The document is in use."""

    generation: int


class Refused(Message, frozen=True):
    """The document could not be used, which is a bug, since the supervisor had accepted it. The worker's log has the
    stack. The previous document stays in use."""

    generation: int
    since: int
    """As in `TakeDocument`: a change that builds on a document that is not in use is refused too."""


class Missed(Message, frozen=True):
    """The worker had no descriptor or memory for a document, or for the sockets of these doors, or the kernel does not
    watch any more sockets: send them again later. The previous document stays in use."""

    doors: tuple[str, ...] = ()


class Snapshot(Message, frozen=True):
    """With `proxy.stats.Stats` as a memory file."""

    cpu_s: float
    resident_bytes: int
    open_descriptors: int


class OfEdge(Message, frozen=True):
    """What became of connections to the edge."""

    report: EdgeReport


ToWorker: TypeAlias = Begin | TakeSockets | TakeDocument | Report | ToEdge | Drain | Cut
FromWorker: TypeAlias = Ready | Taken | Refused | Missed | Snapshot | OfEdge
