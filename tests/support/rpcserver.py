"""A server as Connect's conformance suite expects one, whose clients reach it through the proxy.

    python -m tests.support.rpcserver SERVER PORT HTTP_VERSION CLEAR_PORT TLS_PORT AUTHORITY_FILE

The suite runs this once for each kind of server, which it describes on stdin; the reply on stdout says where clients
find that server: at a port of the proxy. SERVER is the suite's own, and listens on PORT without TLS, with HTTP/1 or
HTTP/2, whatever clients speak to the proxy. Messages are in Protocol Buffers, each preceded by its length in four
bytes. The last value of a field is the one that counts there, so changed fields are appended, and nothing is parsed.
"""

from __future__ import annotations

import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import IO

from tests.support.tied import tied

_HTTP_VERSION, _USE_NO_TLS = b"\x10", b"\x20\x00"
"""Fields of ServerCompatRequest."""
_PORT, _PEM_CERT = b"\x10", b"\x1a"
"""Fields of ServerCompatResponse."""


def received(stream: IO[bytes]) -> bytes:
    (size_bytes,) = struct.unpack(">I", stream.read(4))
    return stream.read(size_bytes)


def framed(message: bytes) -> bytes:
    return struct.pack(">I", len(message)) + message


def varint(number: int) -> bytes:
    more, last = number >> 7, number & 0x7F
    return bytes((last,)) if not more else bytes((last | 0x80,)) + varint(more)


def main() -> None:
    server, port, http_version, clear_port, tls_port, authority_file = sys.argv[1:]
    wanted = received(sys.stdin.buffer)
    is_tls = b"-----BEGIN" in wanted  # a certificate that the server could present if it ended TLS itself

    command = tied([server, "-port", port])
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        signal.signal(signal.SIGTERM, lambda _number, _frame: process.terminate())
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(framed(wanted + _HTTP_VERSION + varint(int(http_version)) + _USE_NO_TLS))
        process.stdin.close()
        answer = received(process.stdout) + _PORT + varint(int(tls_port if is_tls else clear_port))
        if is_tls:
            pem = Path(authority_file).read_bytes()
            answer += _PEM_CERT + varint(len(pem)) + pem
        sys.stdout.buffer.write(framed(answer))
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
