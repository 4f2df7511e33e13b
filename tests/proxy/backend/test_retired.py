"""Removed backends are released in the end, whatever later tables contain."""

import gc
import weakref

from proxy import document
from proxy.backend.balancer import Balancer
from tests.proxy.backend.h2peer import speaks
from tests.proxy.backend.servers import backend, dead_port, of
from tests.proxy.backend.world import World, one, world
from tests.support.collector import thaw


def come_and_go(w: World, name: str, address: str) -> None:
    w.use(one(address, name))
    w.fetch(name)
    w.use()
    w.until(lambda: w.backend(name).connections == 0)


def test_a_removed_backend_is_released_even_while_others_are_removed_all_the_time() -> None:
    with backend() as peer, world() as w:
        for number in range(4):
            come_and_go(w, f"passing-{number}", peer.address)
            w.pass_time(40)

        assert [w.pools.serves(f"passing-{number}") for number in (0, 3)] == [False, True]
        w.pass_time(121)
        assert not w.pools.serves("passing-3")
        gc.collect()
        assert not [one for one in gc.get_objects() if isinstance(one, Balancer) and "passing-" in repr(one)]


def test_removed_backends_are_freed_without_the_garbage_collector() -> None:
    """Workers call `gc.freeze` now and then, and the collector never looks at those objects again."""
    with backend() as peer, backend(speaks()) as h2_peer, world() as w:
        watched = document.ActiveHealth(interval="1h")
        ejecting = document.PassiveHealth(consecutive_failures=1)
        w.use(
            of(peer, name="plain"),
            of(peer, name="probed", active_health=watched),
            of(peer, f"127.0.0.1:{dead_port()}", name="ejecting", passive_health=ejecting),
            of(h2_peer, name="h2c", protocol="h2c"),
        )
        names = ["plain", "probed", "ejecting", "h2c"]
        for name in names * 2:
            w.fetch(name)
        balancers = [weakref.ref(w.pools._balancers[name]) for name in names]
        gc.disable()
        gc.freeze()
        try:
            w.use()
            w.until(lambda: not any(w.backend(name).connections for name in names))
            w.pass_time(121)

            w.until(lambda: not any(map(w.pools.serves, names)))
            assert [balancer() for balancer in balancers] == [None] * 4
        finally:
            thaw()
            gc.enable()


def test_a_removed_address_is_freed_without_the_garbage_collector() -> None:
    """Addresses of Pods come and go all the time."""
    with backend() as peer, backend() as successor, world() as w:
        watched = document.ActiveHealth(interval="1h")
        w.use(of(peer, active_health=watched))
        w.fetch()
        (destination,) = map(weakref.ref, w.pools._balancers["b"]._destinations.values())
        gc.disable()
        gc.freeze()
        try:
            w.use(of(successor, active_health=watched))
            w.fetch()
            w.until(lambda: w.backend().connections == 1)
            w.turns()

            assert destination() is None
        finally:
            thaw()
            gc.enable()


def test_thousands_of_removed_backends_are_released_in_steps() -> None:
    """Ten thousand at once blocked the loop for 40 ms."""
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
