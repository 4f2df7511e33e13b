"""The control channel between the supervisor and one of its workers, over a pair of connected sockets.

Messages are small structs, one per packet, so neither side can read half of one. What may be large, documents and
snapshots of statistics, travels as a sealed memory file, whose descriptor is passed along; listening sockets are passed
as descriptors too. The end of the channel is the end of the other process.
"""

from proxy.control.channel import MAX_DESCRIPTORS, Channel, Incomplete, channel_pair
from proxy.control.memory import mapped, refusal, sealed_file
from proxy.control.messages import (
    Begin,
    Cut,
    Drain,
    FromWorker,
    Missed,
    OfEdge,
    Ready,
    Refused,
    Report,
    Snapshot,
    TakeDocument,
    Taken,
    TakeSockets,
    ToEdge,
    ToWorker,
)

__all__ = [
    "MAX_DESCRIPTORS",
    "Begin",
    "Channel",
    "Cut",
    "Drain",
    "FromWorker",
    "Incomplete",
    "Missed",
    "OfEdge",
    "Ready",
    "Refused",
    "Report",
    "Snapshot",
    "TakeDocument",
    "TakeSockets",
    "Taken",
    "ToEdge",
    "ToWorker",
    "channel_pair",
    "mapped",
    "refusal",
    "sealed_file",
]
