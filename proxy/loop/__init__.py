"""The event loop of a worker, and its connected sockets.

One thread runs it; nothing in here, or called from here, may block. `Loop` waits for sockets and deadlines.
`Transport` is a connected socket, plain or TLS, whose output is bounded by the credit that its senders are still owed.

loop > deadlines                        waits for sockets and deadlines, calls, flushes
transport > output > debts              a connected socket: its output, and whose bytes that is
tlsinput · handshake                    TLS: how much to take at once; how it begins
owner · finishing                       whom a transport calls; how long it waits for its peer at the end
unsent                                  what a worker holds for all peers
"""

from daemonkit.tlssocket import TlsSocket
from proxy.loop.deadlines import Deadline
from proxy.loop.debts import Creditor
from proxy.loop.handshake import Handshake
from proxy.loop.loop import LITTLE_BYTES, READ_BYTES, Handler, Loop
from proxy.loop.output import Buffer, lightened
from proxy.loop.owner import Owner
from proxy.loop.transport import Transport

__all__ = [
    "LITTLE_BYTES",
    "READ_BYTES",
    "Buffer",
    "Creditor",
    "Deadline",
    "Handler",
    "Handshake",
    "Loop",
    "Owner",
    "TlsSocket",
    "Transport",
    "lightened",
]
