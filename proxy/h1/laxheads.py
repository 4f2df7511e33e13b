"""Normalise response heads of old servers and devices. Pure.

Lines that end with LF alone (RFC 9112, 2.2), folded fields (5.2), and spaces before a colon (5.1): browsers and other
proxies read them all alike, and the RFC lets a proxy repair them in responses. SHOUTcast streams write ICY in place of
HTTP/1.0. Requests are never repaired.
"""

import re

END = re.compile(rb"\r?\n\r?\n")
"""The first empty line of such a head."""
_LINE_END = re.compile(rb"\r?\n")
_FOLD = re.compile(rb"\r\n[ \t]+")
_ICY = b"ICY "
_SPACED_NAME = re.compile(rb"(?m)^([!#$%&'*+\-.^_`|~0-9A-Za-z]+)[ \t]+:")


def plain(head: bytes) -> bytes:
    """Normalise a complete head: CRLF at the end of each line, one line per field, no space before a colon, no ICY.

    The status line cannot be folded, so an indented line right after it is left as it is.
    """
    lines = _LINE_END.sub(b"\r\n", head)
    status_line, crlf, fields = lines.partition(b"\r\n")
    if status_line.startswith(_ICY):
        status_line = b"HTTP/1.0 " + status_line.removeprefix(_ICY)
    return status_line + crlf + _SPACED_NAME.sub(rb"\1:", _FOLD.sub(b" ", fields))


def mended(head: bytes, rest: bytes) -> tuple[bytes, bytes] | None:
    """Plain form of a head that could not be read, and what follows it; None if it is in plain form already.

    `rest` is what came behind `head`, which may in fact end before its first two CRLFs.
    """
    end = END.search(head)
    stop = len(head) if end is None else end.end()
    read = plain(head[:stop])
    return None if read == head else (read, head[stop:] + rest)
