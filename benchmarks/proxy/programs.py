"""The programs of a run, as real processes on free loopback ports: proxies to compare, and backends behind them.

Each proxy gets the same job: forward everything to one backend. The number of workers is a parameter, since one and two
are compared. CPU and memory are those of the whole process tree.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import msgspec
import requests

from benchmarks import procfs

START_S = 20.0
BULK_BYTES = 1 << 30
SMALL_BODY = "ok, this is the answer of the backend, some sixty bytes long\n"


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class Program:
    """A process tree that serves on `port`."""

    def __init__(self, name: str, command: list[str], port: int, directory: Path, env: dict[str, str] | None = None):
        self.name = name
        self.port = port
        self._log = (directory / f"{name}-{port}.log").open("wb")
        self._process = subprocess.Popen(
            command, stdout=self._log, stderr=self._log, cwd=directory, env={**os.environ, **(env or {})}
        )
        self._wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def _wait(self) -> None:
        end_s = time.monotonic() + START_S
        while time.monotonic() < end_s:
            if self._process.poll() is not None:
                break
            if self._is_serving():
                return
            time.sleep(0.02)
        said = Path(self._log.name).read_text()[-2000:]
        raise RuntimeError(f"{self.name} does not serve on port {self.port}; it said: {said}")

    def _is_serving(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    @property
    def pids(self) -> list[int]:
        """The process and all its descendants."""
        found, pending = [], [self._process.pid]
        while pending:
            pid = pending.pop()
            found.append(pid)
            for task in Path(f"/proc/{pid}/task").glob("*/children"):
                with contextlib.suppress(OSError):
                    pending += map(int, task.read_text().split())
        return found

    def cpu_s(self) -> float:
        return sum(procfs.cpu_s(pid) for pid in self.pids)

    def rss_bytes(self) -> int:
        return sum(procfs.rss_bytes(pid) for pid in self.pids)

    def peak_rss_bytes(self) -> int:
        return sum(procfs.peak_rss_bytes(pid) for pid in self.pids)

    def forget_peak_rss(self) -> None:
        for pid in self.pids:
            procfs.forget_peak_rss(pid)


class Tunnelgw(Program):
    """Our proxy; its document is pushed as any client would push it."""

    def __init__(self, workers: int, document: dict[str, object], directory: Path) -> None:
        self._config_port = free_port()
        port = int(document["listeners"][0]["port"])  # type: ignore[index]
        state = tempfile.mkdtemp(dir=directory)
        initial = Path(state) / "document.json"
        initial.write_bytes(_json(document))
        command = [sys.executable, "-m", "proxy", "run", "--config", str(initial)]
        command += ["--config-addr", f"127.0.0.1:{self._config_port}", "--allow-unauthenticated-config"]
        env = {"PROXY_WORKERS": str(workers), "LOG_LEVEL": "warning"}
        super().__init__("tunnelgw-proxy", command, port, directory, env)

    def _is_serving(self) -> bool:
        """The supervisor binds its ports before the workers have started."""
        with contextlib.suppress(requests.RequestException):
            return requests.get(f"http://127.0.0.1:{self._config_port}/readyz", timeout=1).ok
        return False

    def put(self, document: bytes) -> float:
        """Returns how long it took until every worker routed by it, in seconds."""
        began_s = time.perf_counter()
        url = f"http://127.0.0.1:{self._config_port}/config"
        reply = requests.put(url, data=document, headers={"Content-Type": "application/json"}, timeout=60)
        reply.raise_for_status()
        return time.perf_counter() - began_s


def document(
    port: int, backend: str, *, protocol: str = "http", certificate: "Certificate | None" = None, routes: int = 1
) -> dict[str, object]:
    """Our configuration. The load uses the last of `routes`."""
    listener: dict[str, object] = {"name": "web", "address": "127.0.0.1", "port": port}
    if certificate:
        pair = {"certificate": certificate.chain.read_text(), "privateKey": certificate.key.read_text()}
        listener |= {"protocol": "HTTPS", "tls": {"certificates": [pair]}}
    others = [
        {
            "name": f"bench/r{n}",
            "hostnames": [f"h{n}.bench.example"],
            "rules": [
                {
                    "matches": [{"path": {"value": f"/p{n}"}}, {"path": {"type": "Exact", "value": "/x"}}],
                    "filters": {"requestHeaderModifier": {"set": [{"name": "X-Route", "value": str(n)}]}},
                    "backends": [{"backend": "b"}, {"backend": "b", "weight": 2}],
                }
            ],
        }
        for n in range(routes - 1)
    ]
    used = {"name": "bench/used", "hostnames": ["127.0.0.1"], "backends": [{"backend": "b"}]}
    backends = [{"name": "b", "addresses": [backend], "protocol": protocol}]
    return {"listeners": [listener], "backends": backends, "routes": [*others, used]}


class Certificate:
    """A self-signed certificate for 127.0.0.1, as files."""

    def __init__(self, directory: Path) -> None:
        self.chain, self.key = directory / "cert.pem", directory / "key.pem"
        subprocess.run(
            [
                "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                "-keyout", str(self.key), "-out", str(self.chain), "-days", "30", "-subj", "/CN=127.0.0.1",
                "-addext", "subjectAltName=IP:127.0.0.1,DNS:127.0.0.1,DNS:localhost",
            ],
            check=True,
            capture_output=True,
        )  # fmt: skip


def nghttpx(
    workers: int, backend: str, directory: Path, *, is_h2_backend: bool, certificate: Certificate | None
) -> Program:
    port = free_port()
    command = ["nghttpx", f"--workers={workers}", "--errorlog-file=/dev/null", "--accesslog-file=", "--log-level=ERROR"]
    host, _, backend_port = backend.partition(":")
    command.append(f"--backend={host},{backend_port}" + (";;proto=h2" if is_h2_backend else ""))
    command.append(f"--frontend=127.0.0.1,{port}" + ("" if certificate else ";no-tls"))
    if certificate:
        # No OCSP: nghttpx runs scripts for it, whose processes come and go while its CPU time is read.
        command += ["--no-ocsp", str(certificate.key), str(certificate.chain)]
    return Program("nghttpx", command, port, directory)


def nginx(workers: int, backend: str, directory: Path, certificate: Certificate | None) -> Program:
    """nginx as a proxy. It speaks HTTP/1.1 to clients without TLS, and also HTTP/2 over TLS."""
    port = free_port()
    listen = f"127.0.0.1:{port}" + (" ssl http2" if certificate else "")
    tls = f"ssl_certificate {certificate.chain}; ssl_certificate_key {certificate.key};" if certificate else ""
    servers = f"""
    upstream b {{ server {backend}; keepalive 256; keepalive_requests 100000000; }}
    server {{
      listen {listen} backlog=4096; {tls}
      client_max_body_size 0;
      location / {{
        proxy_pass http://b; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $http_host;
        proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; proxy_request_buffering off; proxy_buffering on;
        proxy_max_temp_file_size 0;
      }}
    }}"""
    return _nginx("nginx", workers, servers, port, directory)


def http_backend(directory: Path, *, bulk_bytes: int = BULK_BYTES) -> Program:
    """Serves / with a small text and /bulk with 1 GiB or `bulk_bytes`."""
    port = free_port()
    bulk = directory / "bulk"
    with bulk.open("wb") as file:
        file.truncate(bulk_bytes)  # sparse: takes no disk space
    servers = f"""
    server {{
      listen 127.0.0.1:{port} backlog=4096;
      location / {{ default_type text/plain; return 200 "{SMALL_BODY.strip()}\\n"; }}
      location /bulk {{ alias {bulk}; }}
    }}"""
    return _nginx("backend", 1, servers, port, directory)


def h2c_backend(directory: Path) -> Program:
    port = free_port()
    root = directory / "root"
    root.mkdir(exist_ok=True)
    (root / "index.html").write_text(SMALL_BODY)
    return Program("nghttpd", ["nghttpd", "--no-tls", "-d", str(root), str(port)], port, directory)


def _nginx(name: str, workers: int, servers: str, port: int, directory: Path) -> Program:
    home = Path(tempfile.mkdtemp(dir=directory))
    config = home / "nginx.conf"
    # Only its owner can access the directory of a run.
    user = "user root; " if os.getuid() == 0 else ""
    config.write_text(
        f"""{user}daemon off; master_process on; worker_processes {workers}; pid {home}/pid; error_log {home}/error.log;
events {{ worker_connections 8192; }}
http {{
  access_log off; keepalive_requests 100000000; keepalive_timeout 600s; sendfile on; tcp_nopush off;
  http2_max_requests 100000000;
  client_body_temp_path {home}/body; proxy_temp_path {home}/proxy; fastcgi_temp_path {home}/fastcgi;
  uwsgi_temp_path {home}/uwsgi; scgi_temp_path {home}/scgi;
{servers}
}}
"""
    )
    return Program(name, ["nginx", "-p", str(home), "-c", str(config), "-e", f"{home}/error.log"], port, directory)


@contextlib.contextmanager
def sink() -> Iterator[int]:
    """A backend that reads request bodies of any length and responds with 200; yields its port."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        threading.Thread(target=_accept, args=(listener,), daemon=True).start()
        yield int(listener.getsockname()[1])


def _accept(listener: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            sock, _ = listener.accept()
            threading.Thread(target=_swallow, args=(sock,), daemon=True).start()


def _swallow(sock: socket.socket) -> None:
    buffer = bytearray(1 << 20)
    with sock, contextlib.suppress(OSError, ValueError, IndexError):
        while True:
            head = b""
            while b"\r\n\r\n" not in head:
                part = sock.recv(65536)
                if not part:
                    return
                head += part
            fields, _, begun = head.partition(b"\r\n\r\n")
            length = fields.lower().split(b"content-length:")[1].split(b"\r\n")[0]
            left_bytes = int(length) - len(begun)
            while left_bytes > 0:
                size_bytes = sock.recv_into(buffer, min(left_bytes, len(buffer)))
                if not size_bytes:
                    return
                left_bytes -= size_bytes
            sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")


def missing() -> list[str]:
    """Programs that a run needs but that are not installed."""
    return [name for name in ("h2load", "nginx", "nghttpx", "nghttpd", "openssl") if shutil.which(name) is None]


def _json(content: object) -> bytes:
    return msgspec.json.encode(content)
