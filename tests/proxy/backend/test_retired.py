"""Backends that have left the table are let go of in the end, whatever the tables after that bring."""

import gc

from proxy import document
from proxy.backend.balancer import Balancer
from tests.proxy.backend.servers import backend
from tests.proxy.backend.world import World, one, world


def come_and_go(w: World, name: str, address: str) -> None:
    w.use(one(address, name))
    w.fetch(name)
    w.use()
    w.until(lambda: w.backend(name).connections == 0)


def test_a_backend_of_the_past_is_let_go_of_also_while_others_leave_all_the_time() -> None:
    with backend() as peer, world() as w:
        for number in range(4):
            come_and_go(w, f"passing-{number}", peer.address)
            w.pass_time(40)

        assert [w.pools.serves(f"passing-{number}") for number in (0, 3)] == [False, True]
        w.pass_time(121)
        assert not w.pools.serves("passing-3")
        gc.collect()
        assert not [one for one in gc.get_objects() if isinstance(one, Balancer) and "passing-" in repr(one)]


def test_thousands_of_backends_of_the_past_are_let_go_of_some_at_a_time() -> None:
    """Ten thousand at once stopped the loop for 40 ms."""
    names = [f"b{number}" for number in range(5_000)]
    probed = document.ActiveHealth(interval="1h")
    with world(draw=lambda: 0.9) as w:
        w.use(*(document.Backend(name=name, addresses=("192.0.2.1:80",), active_health=probed) for name in names))
        w.until(lambda: all(map(w.pools.serves, names)))
        w.use()
        w.until(lambda: not w.loop._slices)
        assert all(map(w.pools.serves, names))
        w.clock.passed_s += 61

        w.until(lambda: not all(map(w.pools.serves, names)))
        assert any(map(w.pools.serves, names))
        w.until(lambda: not any(map(w.pools.serves, names)))
