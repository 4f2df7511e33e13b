"""What the page about the architecture says about the sources is true: threads and numbers."""

import re

import pytest

from proxy.backend import uploads
from proxy.doors import rests, synfilter, turns
from proxy.exchange import mirrors, relay, untaken
from proxy.h2 import abuse, windows
from proxy.loop import loop, unsent
from proxy.routing import asked
from proxy.supervisor import fleet, tunnel
from proxy.tunnel import edgehttp
from proxy.worker import freeheap, sparefiles
from tests.support.manuals import DOCS
from tests.support.process import REPOSITORY
from tunnelgw import daemon
from tunnelgw.deliver import dispatch, former
from tunnelgw.deliver.means import Means
from tunnelgw.report import holdback, rush
from tunnelgw.sources.kubernetes.lease import LeaseTiming

PAGE = " ".join((DOCS / "architecture.md").read_text(encoding="utf-8").split())
LEASE = LeaseTiming()
EDGE = edgehttp.SETTINGS
DISPATCH = dispatch.Settings(Means("", ""))


def kib(size_bytes: int) -> str:
    return f"{size_bytes >> 10} KiB"


def mib(size_bytes: int) -> str:
    return f"{size_bytes >> 20} MiB"


@pytest.mark.parametrize("package", ["proxy", "tunnelgw"])
def test_every_thread_of_proxy_and_controller_is_named(package: str) -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in (REPOSITORY / package).rglob("*.py"))
    starts = r'(?:Thread\([^)]*name=f?|\.thread\(f?|ThreadPool\(loop, |\[\(f?)"([a-z-]+)|\("([a-z-]+)", self\._\w+\)\]'
    names = ["".join(found).strip("-") for found in re.findall(starts, sources)]

    assert len(names) > 3, "the expression above does not fit the sources any more"
    assert [name for name in names if not re.search(rf"\b{name}", PAGE)] == []


@pytest.mark.parametrize(
    "text",
    [
        f"reserves {sparefiles._COUNT} descriptors for the channel",
        f"regular expressions read at most {mib(asked.MAX_FITTED_BYTES)} of a request",
        f"a turn ends after {1000 * loop.TURN_S:.0f} ms",
        f"for another {synfilter.HANDSHAKE_S:g} s accepts connections",
        f"once {kib(uploads.ENOUGH_BYTES)} wait for the socket of a connection over HTTP/2",
        f"leaves {kib(uploads.ENOUGH_BYTES)} of heads unread",
        f"less than {kib(uploads._LEAST_WINDOW_BYTES)} of a connection's window is left",
        f"its share of a round of {kib(turns.ROUND_BYTES)}",
        f"may send {kib(turns.QUANTUM_BYTES)} in any round",
        f"takes longer than {turns._SLOW_S:g} s is followed by a smaller one",
        f"what arrives in {windows._QUEUE_S:g} s and two round trips",
        f"credit of less than {abuse.DRIBBLE_BYTES} bytes",
        f"{EDGE.max_concurrent_streams:,} times {kib(EDGE.stream_window_bytes)} for the edge",
        f"for up to {rests.REST_S:g} s or {mib(rests.REST_BYTES)}",
        f"Beyond {mib(unsent.LARGE_BYTES)} of all these",
        f"heads of more than {untaken.LARGE_HEAD_FIELDS} fields",
        f"Beyond {mib(untaken.MAX_UNTAKEN_BYTES)} of such bodies and heads",
        f"{mib(mirrors.MAX_TOTAL_BYTES)} of mirrored requests",
        f"kept for retries up to {mib(relay.MAX_KEPT_BYTES)} in all",
        f"grown by {mib(freeheap.WORTH_BYTES)} or more returns what is free within {freeheap.PERIOD_S:.0f} s",
        f"nothing else has changed for {tunnel.SETTLED_S:.0f} s",
        f"status threads, {daemon.STATUS_THREADS}",
        f"{holdback.MAX_HOLD_BACK_S:.0f} s at most. It waits for no other data plane",
        f"do not answer for more than {DISPATCH.patience_s:.0f} s",
        f"wait for the last edit, at most {rush.MAX_S:.0f} s",
        f"cannot renew the Lease for {LEASE.limit_s:.0f} s stops writing",
        f"takes over before {LEASE.duration_s} s have passed",
        f"reads that document again {daemon.LOOK_AGAIN_S:.0f} s later",
    ],
)
def test_the_numbers_are_those_of_the_sources(text: str) -> None:
    assert text in PAGE


def test_the_numbers_that_are_written_as_words_are_those_of_the_sources() -> None:
    assert (former.GRACE_S, "once that has been certain for ten seconds" in PAGE) == (10.0, True)
    assert (fleet.Fleet.watch.__defaults__, "worker-watch: counters every 5 s" in PAGE) == ((5.0,), True)
