"""What translation decided, as rows for people."""

from __future__ import annotations

from tests.tunnelgw.sources.objects import gateway, route
from tunnelgw.commands.judge import absent_parents
from tunnelgw.model.kinds import Kind
from tunnelgw.model.snapshot import Snapshot


def test_a_parent_is_looked_for_in_the_namespace_of_its_route_unless_it_names_another() -> None:
    snapshot = Snapshot.of([(Kind.GATEWAY, gateway("gw", namespace="shop"))])

    beside, elsewhere = (route("web", namespace=namespace) for namespace in ("shop", "blog"))

    assert absent_parents(beside, snapshot) == ()
    assert absent_parents(elsewhere, snapshot) == ("Gateway blog/gw does not exist",)
