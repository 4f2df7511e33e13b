"""A test that is slow by nature, in a file of its own so that others run beside it."""

from __future__ import annotations

import h2.events

from proxy.tunnel.retry import QUICK_CAP_S
from tests.e2e.tunnel.connector import RETRY_LINE, Connector
from tests.support.edge.edge import Edge
from tests.support.edge.hostile import HostileEdge, HostilePeer

EAGER = ["--register-without-config"]


def pings_of(peer: HostilePeer) -> int:
    return sum(isinstance(event, h2.events.PingReceived) for event in peer.events)


def test_a_connection_that_was_good_for_ten_seconds_is_dialled_again_within_one() -> None:
    with (
        Edge(("127.0.0.1:0",)) as edge,
        HostileEdge(edge) as hostile,
        Connector(edge, connections=2, arguments=[*EAGER, "--edge", hostile.address]) as proxy,
    ):
        with hostile.register() as peer:
            # The first comes with the registration, the next ten seconds later.
            peer.wait_for(lambda: pings_of(peer) >= 2, "the second PING", 60)
        with hostile.register() as again:
            assert again.registration is not None
            assert again.registration.options.previous_attempts == 1
        line = proxy.wait_for_message(RETRY_LINE, edge=hostile.address)
        assert (line["attempt"], line["delay_s"] <= QUICK_CAP_S) == (1, True)
