"""Two clusters keep records on one controller, each with an external-dns and a webhook of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from dnswebhook.model import Endpoint
from tests.e2e.test_concurrent_calls import InThread
from tests.support.client_model import SoftError
from tests.support.controller import Hang, faults
from tests.support.daemon import Daemon
from tests.support.desired import HeldRow
from tests.support.passes import Loop, endpoint, rows_of
from tests.support.storeviews import UnifiView

NAME = "app.example.org"
OURS, THEIRS = [endpoint(NAME, "A", "192.0.2.2")], [endpoint(NAME, "A", "192.0.2.1")]
BY_HAND = HeldRow(NAME, "A", "198.51.100.1")
IN_USE = "the state directory is in use by another dnswebhook, notes are kept in memory"
CONTESTED = "another external-dns has claimed the same record"

Cluster = Callable[[str], tuple[Daemon, Loop]]


@pytest.fixture(params=["v2", "integration"])
def view(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[UnifiView]:
    view = UnifiView(request.param, tmp_path)
    yield view
    view.close()


@pytest.fixture
def cluster(view: UnifiView, tmp_path: Path) -> Iterator[Cluster]:
    """By owner id: the webhook, and the external-dns that calls it."""
    with ExitStack() as daemons:

        def start(owner_id: str) -> tuple[Daemon, Loop]:
            env = {**view.env, "DNSWEBHOOK_STATE_DIR": str(tmp_path / owner_id)}
            daemon = daemons.enter_context(Daemon.dnswebhook(env))
            return daemon, Loop(daemon.url("api"), owner_id)

        yield start


def assert_can_have_and_leave_it(us: Loop, view: UnifiView) -> None:
    """NAME is written and removed again, with nobody's rows beside it."""
    assert us.settle(OURS)
    assert view.held() == rows_of(OURS, "z")
    assert us.settle([])
    assert view.held() == set()


def write_at_the_same_moment(view: UnifiView, *wishes: tuple[Loop, list[Endpoint]]) -> None:
    """Each has listed before any of them writes."""
    hang = view.controller.fault(Hang(), "create")
    passes = [InThread(partial(loop.reconcile, desired)) for loop, desired in wishes]
    hang.wait_for_strikes(len(passes), timeout_s=20.0)
    view.controller.faults.clear()
    view.controller.release_hangs()
    for each in passes:
        each.result()


@pytest.mark.parametrize("theirs", [THEIRS, OURS], ids=["another address", "the same address"])
def test_a_cluster_that_lost_a_name_does_not_claim_manual_records_on_it(
    view: UnifiView, cluster: Cluster, theirs: list[Endpoint]
) -> None:
    """external-dns reads one ownership text of a name. One of ours left beside it would claim later records there."""
    (daemon, us), (_, them) = cluster("z"), cluster("a")
    write_at_the_same_moment(view, (us, OURS), (them, theirs))
    for _ in range(2):
        assert them.settle(theirs)
        assert us.settle(OURS)
    assert rows_of(theirs, "a") <= view.held()
    daemon.wait_for_message(CONTESTED, name=NAME, our_owner="z")

    for _ in range(3):  # the first listing precedes the notice of the conflict, the next one waits for the others
        assert us.settle([])
    assert view.held() == rows_of(theirs, "a")
    assert them.settle([])
    view.add([BY_HAND])
    for loop in (us, them):
        assert loop.settle([])

    assert view.held() == {BY_HAND}


def test_a_cluster_that_lost_a_name_gets_it_when_the_other_releases_it(view: UnifiView, cluster: Cluster) -> None:
    (_, us), (_, them) = cluster("z"), cluster("a")
    write_at_the_same_moment(view, (us, OURS), (them, OURS))
    assert us.settle(OURS)

    assert them.settle([])

    assert_can_have_and_leave_it(us, view)


@pytest.mark.parametrize("view", ["v2"], indirect=True)
def test_daemons_that_share_a_state_directory_keep_each_others_ownership_records(view: UnifiView) -> None:
    """Otherwise one would follow a note of the other, about a value that has changed since."""
    before, after = ([endpoint(NAME, "A", value)] for value in ("192.0.2.1", "192.0.2.2"))
    with Daemon.dnswebhook(view.env) as daemon:
        us = Loop(daemon.url("api"), "z")
        fault = view.controller.fault(faults.bad_gateway(), "write", name=NAME)
        assert isinstance(us.try_pass(before), SoftError)
        with Daemon.dnswebhook(view.env) as other:
            them = Loop(other.url("api"), "a")
            view.controller.faults.remove(fault)
            assert us.settle(after)
            assert them.settle([])
            other.wait_for_message(IN_USE)

        assert view.held() == rows_of(after, "z")


@pytest.mark.parametrize("view", ["v2"], indirect=True)
def test_a_name_with_an_ownership_record_of_another_cluster_is_refused_until_that_is_removed(
    view: UnifiView, cluster: Cluster
) -> None:
    """external-dns 0.19 and newer send no ownership record where there is one, whoever owns it."""
    (_, us), (_, them) = cluster("z"), cluster("a")
    fault = view.controller.fault(faults.bad_gateway(), "write", name=NAME)
    assert isinstance(them.try_pass(THEIRS), SoftError)
    view.controller.faults.remove(fault)

    assert isinstance(us.try_pass(OURS), SoftError)
    assert "'a'" in json.loads(us.replies[-1].body)["message"]
    for _ in range(2):
        assert them.settle([])

    assert_can_have_and_leave_it(us, view)


@pytest.mark.parametrize("view", ["v2"], indirect=True)
def test_a_cluster_can_change_the_type_of_its_name_despite_an_ownership_record_of_another(
    view: UnifiView, cluster: Cluster
) -> None:
    """The other cluster left an ownership record of that type, and still wants the name."""
    alias_of_theirs, alias = ([endpoint(NAME, "CNAME", f"{each}.example.net")] for each in ("m", "z"))
    (_, us), (_, them) = cluster("z"), cluster("m")
    fault = view.controller.fault(faults.bad_gateway(), "write", name=NAME)
    assert isinstance(them.try_pass(alias_of_theirs), SoftError)
    view.controller.faults.remove(fault)
    assert us.settle(OURS)

    assert them.settle(alias_of_theirs)
    assert us.settle(alias)
    assert view.held() == rows_of(alias, "z")
    assert us.settle([])
    assert them.settle(alias_of_theirs)

    assert view.held() == rows_of(alias_of_theirs, "m")


@pytest.mark.parametrize("view", ["v2"], indirect=True)
def test_a_cluster_can_remove_its_record_despite_an_ownership_record_of_another(
    view: UnifiView, cluster: Cluster
) -> None:
    """Otherwise each would remove its ownership record in favour of the other's, and the record would have no owner."""
    (_, us), (_, them) = cluster("z"), cluster("a")
    hang = view.controller.fault(Hang(), "create")
    ours = InThread(partial(us.reconcile, OURS))
    hang.wait_for_strikes(1, timeout_s=20.0)  # we have listed
    view.controller.faults.clear()
    fault = view.controller.fault(faults.bad_gateway(), "write", name=NAME)
    assert isinstance(them.try_pass(THEIRS), SoftError)
    view.controller.faults.remove(fault)
    view.controller.release_hangs()
    ours.result()

    assert us.settle(OURS)
    for _ in range(2):
        us.reconcile([])
    assert them.settle([])
    assert us.settle([])

    assert view.held() == set()
