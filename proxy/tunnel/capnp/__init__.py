"""Cap'n Proto without a schema compiler: the part of the encoding that the tunnel's control stream needs, with limits.

`MessageReader.receive(bytes)` yields the roots of messages; `encode(root)` makes a message. Struct layouts are defined
where structs are built and read: `proxy.tunnel.rpc` and `proxy.tunnel.registration`. No packed encoding. Pure.

framing > decoding                      messages from a stream of bytes; one message as a tree
encoding                                a tree as a message
values · errors                         the trees; how reading can fail
"""

from proxy.tunnel.capnp.decoding import decode
from proxy.tunnel.capnp.encoding import encode
from proxy.tunnel.capnp.errors import MalformedMessage
from proxy.tunnel.capnp.framing import MAX_MESSAGE_BYTES, MAX_SEGMENTS, MessageReader
from proxy.tunnel.capnp.values import (
    EMPTY,
    Capability,
    PointerList,
    Scalars,
    Struct,
    StructList,
    Value,
    octets,
    text,
)

__all__ = [
    "EMPTY",
    "MAX_MESSAGE_BYTES",
    "MAX_SEGMENTS",
    "Capability",
    "MalformedMessage",
    "MessageReader",
    "PointerList",
    "Scalars",
    "Struct",
    "StructList",
    "Value",
    "decode",
    "encode",
    "octets",
    "text",
]
