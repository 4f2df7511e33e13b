"""Third-party servers: nginx (HTTP/1.1 and TLS) and nghttpd (HTTP/2) behind the proxy, HAProxy in front of it."""

from __future__ import annotations

import contextlib
import socket
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.certificates import Issued
from tests.support.ports import LOOPBACK, ReservedPort
from tests.support.process import Process
from tests.support.programs import program

START_S = 20.0
_BETWEEN_TRIES_S = 0.02


class Server:
    """A program that serves the files of `root` on `address`."""

    def __init__(
        self, name: str, command: list[str], port: ReservedPort, folder: tempfile.TemporaryDirectory[str]
    ) -> None:
        self.address = port.address
        self.root = Path(folder.name) / "root"
        self._port = port
        self._folder = folder
        self._process = Process(name, command)

    def __enter__(self) -> Self:
        self._process.start()
        _wait_for(self.address, self._process)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.stop()
        self._port.close()
        self._folder.cleanup()


def _wait_for(address: str, process: Process) -> None:
    host, _, port = address.partition(":")
    end_s = time.monotonic() + START_S
    while process.is_running and time.monotonic() < end_s:
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 1):
            return
        time.sleep(_BETWEEN_TRIES_S)
    raise AssertionError(f"{process.name} does not serve on {address}; its log:\n{process.tail}")


def nginx(certificate: Issued | None = None, locations: str = "") -> Server:
    """Serves files (ranges, conditional requests) and accepts uploads at /upload (WebDAV PUT); more by `locations`."""
    executable = program("nginx", "nginx-light")
    port = ReservedPort()
    folder: tempfile.TemporaryDirectory[str] = tempfile.TemporaryDirectory(prefix="tunnelgw-nginx-")
    home = Path(folder.name)
    home.chmod(0o755)
    (home / "root").mkdir()
    tls = f"ssl_certificate {certificate.file}; ssl_certificate_key {certificate.file};" if certificate else ""
    listen = port.address + (" ssl http2" if certificate else "")
    temporary = " ".join(
        f"{kind}_temp_path {home}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (home / "nginx.conf").write_text(
        f"""daemon off; master_process off; worker_processes 1; pid {home}/pid; error_log stderr;
events {{ worker_connections 4096; }}
http {{
  access_log off; keepalive_requests 100000; {temporary}
  server {{
    listen {listen}; {tls} root {home}/root; client_max_body_size 0; chunked_transfer_encoding on;
    location / {{ }}
    location = /hello {{ default_type text/plain; return 200 "hello from nginx\\n"; }}
    location = /teapot {{ return 418 "short and stout\\n"; }}
    {locations}
  }}
}}
"""
    )
    command = [executable, "-p", str(home), "-c", str(home / "nginx.conf"), "-e", "stderr"]
    return Server("nginx", command, port, folder)


def nghttpd(certificate: Issued | None = None, *options: str) -> Server:
    """nghttpd with HTTP/2, without or with TLS; useful options are `--echo-upload` and `--trailer=...`."""
    executable = program("nghttpd", "nghttp2-server")
    port = ReservedPort()
    folder: tempfile.TemporaryDirectory[str] = tempfile.TemporaryDirectory(prefix="tunnelgw-nghttpd-")
    root = Path(folder.name) / "root"
    root.mkdir()
    keys = [str(certificate.file), str(certificate.file)] if certificate else []
    clear = [] if certificate else ["--no-tls"]
    command = [executable, *clear, *options, f"--address={LOOPBACK}", "-d", str(root), str(port.number), *keys]
    return Server("nghttpd", command, port, folder)


def haproxy(target: str, options: str) -> Server:
    """HAProxy that forwards connections to `target`; `options` belong to its `server` line, such as `send-proxy`."""
    executable = program("haproxy")
    port = ReservedPort()
    folder: tempfile.TemporaryDirectory[str] = tempfile.TemporaryDirectory(prefix="tunnelgw-haproxy-")
    config = Path(folder.name) / "haproxy.cfg"
    config.write_text(
        f"""global
  log stderr format raw local0
defaults
  mode tcp
  log global
  timeout connect 5s
  timeout client 30s
  timeout server 30s
listen front
  bind {port.address}
  server behind {target} {options}
"""
    )
    return Server("haproxy", [executable, "-db", "-f", str(config)], port, folder)
