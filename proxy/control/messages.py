"""The messages of the control channel. Both ends are of one release, so there is nothing to negotiate."""

from typing import TypeAlias

import msgspec

from proxy.accesslog import AccessLogSettings
from proxy.tunnel.orders import EdgeOrder, EdgeReport


class Message(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """One packet."""


class Begin(Message, frozen=True):
    """First of all: what a worker has to know before it makes anything."""

    index: int
    log_level: str
    log_format: str
    access_log: AccessLogSettings


class TakeSockets(Message, frozen=True):
    """With one listening socket per door, in that order; they are served from the next document on, until a document
    does not name the door any more."""

    doors: tuple[str, ...]


class TakeDocument(Message, frozen=True):
    """With a memory file: what is to be changed in the document that is served. Make a table of it and use it."""

    generation: int
    """Rises with every message of this kind, while a version may come twice."""
    version: int
    since: int
    """Generation that the change begins at; 0: nothing is needed of it, the document comes whole."""


class Report(Message, frozen=True):
    """Answer with a Snapshot."""


class ToEdge(Message, frozen=True):
    """About connections to the tunnel's edge; `DialMeans` come along with a dial, as a memory file."""

    order: EdgeOrder


class Drain(Message, frozen=True):
    """Accept what is queued, close the listening sockets, unregister from the edge, finish what runs, end."""


class Cut(Message, frozen=True):
    """Reset what still runs, end."""


class Ready(Message, frozen=True):
    """The worker's loop turns."""


class Taken(Message, frozen=True):
    """The document is in use."""

    generation: int


class Refused(Message, frozen=True):
    """The document could not be used, which is a bug: the supervisor had accepted it. The worker's log has the stack.
    The document before stays in use."""

    generation: int
    since: int
    """As in `TakeDocument`: a change that builds on a document which is not in use is refused too."""


class Missed(Message, frozen=True):
    """The worker had no descriptor or memory for a document, or for the sockets of these doors: they are to be given
    again, later. The document before stays in use."""

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
