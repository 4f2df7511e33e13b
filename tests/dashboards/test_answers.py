"""A real Prometheus that scrapes our daemons has data for each panel."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.dashboards.boards import Asked, asked
from tests.dashboards.world import World
from tests.proxy.site import eventually
from tests.support.process import REPOSITORY

MANUAL = (REPOSITORY / "docs" / "monitoring.md").read_text(encoding="utf-8")
EMPTY_HERE = {
    "controller: Not well now",
    "dnswebhook: Calls to the store that fail",  # calls to the embedded store do not fail
}
LOOKED_FOR_S = 15.0
"""Without the time of the queries themselves. Prometheus begins to scrape five seconds after its start."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with World(tmp_path_factory.mktemp("world")) as world:
        yield world


def test_every_panel_has_data(world: World) -> None:
    missing = [query for query in asked() if str(query) not in EMPTY_HERE]

    def all_have_data() -> bool:
        missing[:] = [query for query in missing if not has_data(world, query)]
        return not missing

    try:
        happening_until(world, all_have_data, "every panel has data")
    except AssertionError:
        pytest.fail("\n".join(f"{query}: {query.filled_in}" for query in missing))


def happening_until(world: World, is_so: Callable[[], bool], what: str) -> None:
    def look() -> bool:
        world.go_on()
        return is_so()

    eventually(look, what, LOOKED_FOR_S)


def has_data(world: World, query: Asked) -> bool:
    return has_answer(world, query.filled_in)


def has_answer(world: World, query: str) -> bool:
    return any(not math.isnan(float(sample["value"][1])) for sample in world.answer(query))


def test_the_manuals_queries_about_a_canary_have_an_answer(world: World) -> None:
    found = re.findall(r"^  query: \|\n((?:    .*\n)+)", MANUAL.partition("\n## Canaries\n")[2], re.M)
    queries = [query.replace("{{ namespace }}/{{ service }}-canary:.*", ".+") for query in found]
    queries = [query.replace("{{ interval }}", "5s") for query in queries]

    assert len(queries) == 2
    for query in queries:
        happening_until(world, partial(has_answer, world, query), query)
    (rate,) = world.answer(queries[0])
    assert 0 < float(rate["value"][1]) < 100, "one of the two backends does not listen"


def test_the_first_table_lists_firing_conditions_with_place_and_remedy(world: World) -> None:
    def told(board: str) -> set[tuple[str, str, str]]:
        """Alert, severity, and the instance or route."""
        rows = [sample["metric"] for sample in world.answer(not_well(board).filled_in)]
        assert all(row["what_to_do"] for row in rows)
        return {(row["alert"], row["severity"], row.get("instance") or row.get("route", "")) for row in rows}

    empty = world.empty_proxy.address("config")
    wanted = {("TunnelgwProxyWithoutDocument", "critical", empty), ("TunnelgwProxyErrors", "warning", "shop/shop")}
    refused = ("DnsWebhookChangesRefused", "warning", world.webhook.address("health"))
    happening_until(world, lambda: wanted <= told("proxy") and told("dnswebhook") == {refused}, "what is wrong is told")
    eventually(lambda: told("controller") == set(), "the controller has nothing left to do")


def test_the_instance_variable_filters_the_first_table(world: World) -> None:
    other = not_well("proxy").expression.replace("$job", "proxy").replace("$instance", "127.0.0.1:1")

    assert world.answer(other) == []


def not_well(board: str) -> Asked:
    (query,) = (query for query in asked() if query.board == board and query.panel == "Not well now")
    return query


@pytest.mark.parametrize("board", ["controller", "dnswebhook"])
def test_process_panels_show_only_the_processes_of_their_daemon(world: World, board: str) -> None:
    own = {"controller": world.controller.address("metrics"), "dnswebhook": world.webhook.address("health")}
    for query in (query for query in asked() if query.board == board and "process_" in query.expression):
        eventually(partial(has_data, world, query), "it is collected")
        assert [sample["metric"]["instance"] for sample in world.answer(query.filled_in)] == [own[board]]
