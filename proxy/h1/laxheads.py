"""Response heads as old servers and devices write them, brought into the form that all others have. Pure.

Lines that end with LF alone (RFC 9112, 2.2), fields that are folded (5.2), and spaces before a colon (5.1): browsers
and other proxies read them all alike, and the RFC lets a proxy repair them in responses. Streams of SHOUTcast call
their HTTP/1.0 ICY. Requests are never repaired.
"""

import re

END = re.compile(rb"\r?\n\r?\n")
"""Of such a head: the first empty line."""
_LINE_END = re.compile(rb"\r?\n")
_FOLD = re.compile(rb"\r\n[ \t]+")
_ICY = b"ICY "
_SPACED_NAME = re.compile(rb"(?m)^([!#$%&'*+\-.^_`|~0-9A-Za-z]+)[ \t]+:")


def plain(head: bytes) -> bytes:
    """A head that ends with an empty line, with CRLF at the end of each line, a line for each field, and HTTP's name.

    The status line is not continued: what follows it indented would be part of nothing.
    """
    lines = _LINE_END.sub(b"\r\n", head)
    status_line, crlf, fields = lines.partition(b"\r\n")
    if status_line.startswith(_ICY):
        status_line = b"HTTP/1.0 " + status_line.removeprefix(_ICY)
    return status_line + crlf + _SPACED_NAME.sub(rb"\1:", _FOLD.sub(b" ", fields))


def mended(head: bytes, rest: bytes) -> tuple[bytes, bytes] | None:
    """A head that cannot be read as it is, in plain form, and what follows it; None: it is in plain form.

    `rest`: what came behind it. It may have ended before its first two CRLFs.
    """
    end = END.search(head)
    stop = len(head) if end is None else end.end()
    read = plain(head[:stop])
    return None if read == head else (read, head[stop:] + rest)
