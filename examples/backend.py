"""A small HTTP backend that echoes each request: for trying out routes, and used by `make demo`.

    python3 examples/backend.py 3000 --name blue
    python3 examples/backend.py 3001 --name green --status 503

It needs only the standard library. Every response is text: the backend's name, the request line, and the fields in
which a proxy describes its client. `/slow` responds after five seconds.
"""

import argparse
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SLOW_S = 5.0
SHOWN = ("host", "x-", "forwarded", "via", "origin", "cookie")
"""Prefixes of the field names that are shown."""


class Backend(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int, name: str, status_code: int) -> None:
        """With port 0, the kernel chooses a free one, see `server_port`."""
        super().__init__(("127.0.0.1", port), _Handler)
        self.name = name
        self.status_code = status_code


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = (
        True  # head and body are written one by one, and the body must not wait for the head's ACK
    )
    server: Backend

    def do_GET(self) -> None:
        size_bytes = int(self.headers.get("Content-Length", 0))
        received = self.rfile.read(size_bytes)
        if self.path.partition("?")[0] == "/slow":
            time.sleep(SLOW_S)
        shown = sorted(f"{name.lower()}: {value}" for name, value in self.headers.items() if _is_shown(name))
        lines = [f"{self.server.name}: {self.command} {self.path}", *shown]
        if received:
            lines.append(f"{len(received)} bytes of body")
        body = "".join(f"{line}\n" for line in lines).encode()
        self.send_response(self.server.status_code)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def __getattr__(self, name: str) -> Any:
        """Handle every method in the same way."""
        if name.startswith("do_"):
            return self.do_GET
        raise AttributeError(name)

    def version_string(self) -> str:
        return "example-backend"

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing: the responses say enough."""


def _is_shown(name: str) -> bool:
    return name.lower().startswith(SHOWN)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("port", type=int, help="on 127.0.0.1; 0 for any free one")
    parser.add_argument("--name", default="backend", help="its name in answers")
    parser.add_argument("--status", type=int, default=200, metavar="CODE", help="status code of all answers")
    options = parser.parse_args()
    with Backend(options.port, options.name, options.status) as backend:
        sys.stdout.write(f"{options.name} listens on http://127.0.0.1:{backend.server_port}\n")
        sys.stdout.flush()
        try:
            backend.serve_forever()
        except KeyboardInterrupt:
            return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
