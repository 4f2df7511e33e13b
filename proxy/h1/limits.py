"""Limits on what a peer may cost us. A connection never holds more bytes than these plus one read of its socket."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes. Exceeding one is answered with the status code beside it, or 502 if a backend did."""

    max_request_line_bytes: int = 16 * 1024
    """414; RFC 9112, 3 wants at least 8000."""
    max_head_bytes: int = 64 * 1024
    """431; start line, fields and the empty line together."""
    max_fields: int = 256
    """431; trailers are counted separately."""
    max_trailer_bytes: int = 16 * 1024
    """431."""
    max_chunk_line_bytes: int = 256
    """400; a size has at most 16 digits, the rest are extensions, which only attackers use."""
    max_chunk_extension_bytes: int = 4 * 1024
    """400; all extensions of one body."""
    max_informational: int = 32
    """1xx responses before the final one; together they may be as large as one head."""
    max_pipelined_bytes: int = 64 * 1024
    """No error: while this much of later requests is held, `wants_data` is false."""


DEFAULT_LIMITS = Limits()
