"""Run an edge as a process: prints what connectors and clients need, then events. Ends on SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import signal
import threading
import uuid
from pathlib import Path

from tests.support.edge.authority import EdgeAuthority
from tests.support.edge.behaviour import Behaviour, Hang, busy, unauthorized
from tests.support.edge.edge import Edge
from tests.support.edge.ledger import Record
from tests.support.edge.tunnels import Tunnel

TUNNEL = Tunnel("0123456789abcdef0123456789abcdef", uuid.UUID("aaaaaaaa-1111-4222-8333-444444444444"), b"d" * 32)
"""The same in every run, so that a connector can outlive the edge."""


def main() -> None:
    options = _parser().parse_args()
    authority = _authority(options.authority)
    edge = Edge(
        options.listen or ["127.0.0.1:0", "127.0.0.1:0"], options.front, options.secure_front, authority=authority
    )
    edge.tunnels.remove(edge.tunnel.tunnel_id)
    edge.tunnels.add(TUNNEL)
    edge.behave(_behaviour(options))
    if options.ca_out:
        options.ca_out.write_bytes(edge.authority.pem)
    # Blocked before any thread starts, so that every thread inherits it and the wait below gets the signal.
    ending = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ending)
    with edge:
        for address in edge.addresses:
            print(f"edge {address}")
        print(f"front http://{edge.front}\nsecure-front http://{edge.secure_front}\ntoken {TUNNEL.token}", flush=True)
        printing = threading.Lock()
        threading.Thread(target=_tell, args=(edge, printing), name="teller", daemon=True).start()
        signal.sigwait(ending)
        edge.forgive()
    printing.acquire()  # for good: the interpreter aborts if a thread is in the middle of a line when it exits


def _tell(edge: Edge, printing: threading.Lock) -> None:
    """Print a line for each change of a connection."""
    told: dict[int, str] = {}
    violations: list[str] = []

    def news() -> list[tuple[Record, str]]:
        states = [(record, _state(record)) for record in edge.ledger.records]
        return [(record, state) for record, state in states if told.get(record.number) != state]

    def is_news() -> bool:
        return bool(news()) or len(edge.ledger.violations) > len(violations)

    while True:
        edge.wait_for(is_news, "news", threading.TIMEOUT_MAX)
        for record, state in news():
            told[record.number] = state
            with printing:
                print(f"connection {record.number} at {record.address}: {state}", flush=True)
        for violation in edge.ledger.violations[len(violations) :]:
            violations.append(violation)
            with printing:
                print(f"violation: {violation}", flush=True)


def _state(record: Record) -> str:
    if record.closed is not None:
        return f"over, {record.closed}"
    if record.is_unregistered:
        return "unregistered"
    if record.is_registered:
        registration = record.registrations[-1]
        return f"registered, index {registration.conn_index} of {registration.options.client.version}"
    return "refused" if record.answers else "connected"


def _authority(file: Path | None) -> EdgeAuthority | None:
    """The authority kept in `file`, key and certificate, so that a restarted edge is trusted as before."""
    if file is None:
        return None
    if file.exists():
        return EdgeAuthority.load(file.read_bytes())
    authority = EdgeAuthority.make()
    file.touch(mode=0o600)
    file.write_bytes(authority.pem_with_key)
    return authority


def _behaviour(options: argparse.Namespace) -> Behaviour:
    refusal = None
    if options.reject:
        refusal = busy(cause=options.reject) if options.should_retry else unauthorized(options.reject)
    return Behaviour(
        location=options.location,
        hang=Hang[options.hang.upper().replace("-", "_")] if options.hang else None,
        refusal=refusal,
        drop_after_s=options.drop_after_s,
        register_delay_s=options.register_delay_s,
        request_delay_s=options.request_delay_s,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.support.edge", description=__doc__)
    parser.add_argument("--listen", action="append", help="host:port for connectors; may be repeated (default: two)")
    parser.add_argument("--front", default="127.0.0.1:0", help="host:port for clients (default %(default)s)")
    parser.add_argument("--secure-front", default="127.0.0.1:0", help="likewise, as if they had come over https")
    parser.add_argument("--ca-out", type=Path, help="where to write the certificate that connectors must trust")
    parser.add_argument("--authority", type=Path, help="file that keeps its key for the next run; made if missing")
    parser.add_argument("--location", default="LIS", help="default %(default)s")
    parser.add_argument("--reject", metavar="CAUSE", help="refuse every registration")
    parser.add_argument("--should-retry", action="store_true", help="with --reject: say that it may be tried again")
    hangs = [hang.name.lower().replace("_", "-") for hang in Hang]
    parser.add_argument("--hang", choices=hangs, help="where connections get stuck")
    parser.add_argument("--drop-after-s", type=float, help="break each connection so long after it was accepted")
    parser.add_argument("--register-delay-s", type=float, default=0.0, help="before a registration is answered")
    parser.add_argument("--request-delay-s", type=float, default=0.0, help="before a request is passed on")
    return parser


if __name__ == "__main__":
    main()
