"""Tests that are too large for the test suite: 5,000 idle connections, and bodies of 1 GiB in every protocol.

    python -m benchmarks.proxy_limits

Prints tables for docs/performance.md, and exits with code 1 if a limit is exceeded: 16 MiB of memory for a body, 24 KiB
for an idle connection without TLS, 64 KiB with TLS.
"""

import contextlib
import resource
import socket
import ssl
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks import procfs
from benchmarks.proxy import programs
from tests.support.asking import ask
from tests.support.gateway import Gateway, resident_bytes, route_to
from tests.support.programs import curl
from tests.support.recordingbackend import RecordingBackend, Reply

CONNECTIONS = 5000
MIB = 1 << 20
MOST_PER_BODY_BYTES = 16 * MIB
MOST_PER_CONNECTION_BYTES = {"clear": 24 * 1024, "TLS": 64 * 1024}
TIMEOUT_S = 300.0
REQUEST = b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"


def main() -> int:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    is_fine = idle_connections()
    with tempfile.TemporaryDirectory() as directory, Gateway(workers=1) as gateway:
        is_fine &= bodies(Path(directory), gateway, PROTOCOLS)
    return 0 if is_fine else 1


# -- idle connections ------------------------------------------------------------------------------------------------


def idle_connections() -> bool:
    is_fine = True
    print(f"\n| {CONNECTIONS:,} idle connections | memory of the worker | each | a request meanwhile, p50 / longest |")
    print("|---|---|---|---|")
    for kind, most_bytes in MOST_PER_CONNECTION_BYTES.items():
        with RecordingBackend(respond=lambda _: Reply(body=b"ok")) as backend, Gateway(workers=1) as gateway:
            gateway.serve(route_to(backend.address))
            (worker,) = gateway.worker_pids
            context = gateway.doors.authority.client_context() if kind == "TLS" else None
            port = gateway.tls[1] if context else gateway.clear[1]
            ask(port, tls=context)
            before_bytes = resident_bytes(worker)
            with connections(port, context):
                each_bytes = (resident_bytes(worker) - before_bytes) / CONNECTIONS
                took_s = sorted(timed(gateway.clear[1]) for _ in range(200))
                total_mib = resident_bytes(worker) / MIB
            p50_ms, longest_ms = took_s[100] * 1000, took_s[-1] * 1000
            print(
                f"| {kind} | {total_mib:.0f} MiB | {each_bytes / 1024:.1f} KiB | {p50_ms:.1f} / {longest_ms:.1f} ms |"
            )
            is_fine &= each_bytes <= most_bytes
    return is_fine


@contextlib.contextmanager
def connections(port: int, tls: ssl.SSLContext | None) -> Iterator[None]:
    """Open connections, each of which has had a response."""
    with contextlib.ExitStack() as opened:
        for _ in range(CONNECTIONS):
            sock = opened.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
            if tls is not None:
                sock = opened.enter_context(tls.wrap_socket(sock, server_hostname="localhost"))
            sock.sendall(REQUEST)
            assert sock.recv(65536).startswith(b"HTTP/1.1 200")
        yield


def timed(port: int) -> float:
    began_s = time.perf_counter()
    assert ask(port).status_code == 200
    return time.perf_counter() - began_s


# -- bodies ----------------------------------------------------------------------------------------------------------

PROTOCOLS = {
    "HTTP/1.1": ("http", "--http1.1"),
    "HTTP/2": ("http", "--http2-prior-knowledge"),
    "HTTP/1.1, TLS": ("https", "--http1.1"),
    "HTTP/2, TLS": ("https", "--http2"),
}


def bodies(directory: Path, gateway: Gateway, protocols: Mapping[str, tuple[str, str]]) -> bool:
    is_fine = True
    print("\n| 1 GiB | client | rate | CPU of the worker | memory grew by |")
    print("|---|---|---|---|---|")
    with programs.http_backend(directory) as files, programs.sink() as sink:
        up = route_to(f"127.0.0.1:{sink}", name="up", matches=[{"method": "PUT"}])
        gateway.serve(up, route_to(f"127.0.0.1:{files.port}", name="down"))
        (worker,) = gateway.worker_pids
        curl(gateway.url_of("/"))
        for direction, options in (("down", []), ("up", ["-T", str(directory / "bulk")])):
            for name, (scheme, version) in protocols.items():
                is_fine &= body(gateway, worker, f"{direction} | {name}", [version, *options], scheme)
    return is_fine


def body(gateway: Gateway, worker: int, label: str, options: list[str], scheme: str) -> bool:
    before_bytes, before_cpu_s = resident_bytes(worker), procfs.cpu_s(worker)
    procfs.forget_peak_rss(worker)
    began_s = time.perf_counter()
    trust = ["--cacert", str(gateway.doors.authority.file)]
    done = curl(
        *options, *trust, "-o", "/dev/null", "--fail", gateway.url_of("/bulk", scheme=scheme), timeout_s=TIMEOUT_S
    )
    took_s = time.perf_counter() - began_s
    if done.returncode:
        print(f"{label}: curl ended with {done.returncode}: {done.stderr.decode()}", file=sys.stderr)
        return False
    grown_bytes = procfs.peak_rss_bytes(worker) - before_bytes
    rate = programs.BULK_BYTES / took_s / 1e6
    cpu_s = procfs.cpu_s(worker) - before_cpu_s
    print(f"| {label} | {rate:.0f} MB/s | {cpu_s:.2f} s | {grown_bytes / MIB:.1f} MiB |")
    return grown_bytes <= MOST_PER_BODY_BYTES


if __name__ == "__main__":
    sys.exit(main())
