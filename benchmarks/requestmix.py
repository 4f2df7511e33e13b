"""HTTP/2 request heads with a given number of new fields, encoded as clients and the tunnel's edge encode them.

Sixteen fields, including pseudo-header fields, Huffman coded, for a peer whose header table has size 0. New fields have
a value that never occurred before, of a realistic kind and length; the others repeat. The encoder is another
implementation than the decoder being measured.
"""

import itertools
from typing import Final

from hpack import Encoder

TABLE_SIZE_ZERO: Final = b"\x20"
"""Precedes the first block of a connection."""
# Those with a token can be new.
_FIELDS: Final = (
    (":method", "GET"),
    (":scheme", "https"),
    (":authority", "bench.example"),
    (":path", "/?id={token}"),
    ("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
    ("accept-encoding", "gzip, br"),
    ("x-forwarded-proto", "https"),
    ("cf-visitor", '{{"scheme":"https"}}'),
    ("cf-ipcountry", "DE"),
    ("user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0 {token}"),
    ("cookie", "session={token}{token}"),
    ("referer", "https://bench.example/from/{token}"),
    ("cf-connecting-ip", "2001:db8::{token}"),
    ("true-client-ip", "2001:db8::{token}"),
    ("if-none-match", '"{token}"'),
    ("cf-ray", "{token}-FRA"),
)
_CHANGING: Final = tuple(name for name, value in reversed(_FIELDS) if "{token}" in value)
MAX_NEW_FIELDS: Final = len(_CHANGING)
_SAME: Final = "0f1e2d3c4b5a6978"
_ODD: Final = 0x9E3779B97F4A7C15
"""Multiplied by a number, modulo 2^64: digits that look like none before."""


class RequestMix:
    """Blocks without end, for any number of connections."""

    def __init__(self, new_fields: int) -> None:
        """`new_fields`, up to MAX_NEW_FIELDS, are new in each block: first `cf-ray`, then upwards."""
        self._encoder = Encoder()
        self._encoder.header_table_size = 0
        self._encoder.encode([])
        self._numbers = itertools.count(1)
        self._new_names = frozenset(_CHANGING[:new_fields])

    def block(self) -> bytes:
        token = f"{next(self._numbers) * _ODD % 2**64:016x}"
        return self._encoder.encode(
            [(name, value.format(token=token if name in self._new_names else _SAME)) for name, value in _FIELDS]
        )
