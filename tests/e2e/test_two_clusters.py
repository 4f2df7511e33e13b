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
    """By its owner id: the webhook, and the external-dns that calls it."""
    with ExitStack() as daemons:

        def start(owner_id: str) -> tuple[Daemon, Loop]:
            env = {**view.env, "DNSWEBHOOK_STATE_DIR": str(tmp_path / owner_id)}
            daemon = daemons.enter_context(Daemon.dnswebhook(env))
            return daemon, Loop(daemon.url("api"), owner_id)

        yield start


def assert_can_have_and_leave_it(us: Loop, view: UnifiView) -> None:
    """The name, with nothing of anybody's beside it."""
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
def test_who_has_lost_a_name_to_another_claims_nothing_that_is_made_there_by_hand(
    view: UnifiView, cluster: Cluster, theirs: list[Endpoint]
) -> None:
    """external-dns reads one ownership text of a name. Ours stayed beside it, and claimed what came there later."""
    (daemon, us), (_, them) = cluster("z"), cluster("a")
    write_at_the_same_moment(view, (us, OURS), (them, theirs))
    for _ in range(2):
        assert them.settle(theirs)
        assert us.settle(OURS)
    assert rows_of(theirs, "a") <= view.held()
    daemon.wait_for_message(CONTESTED, name=NAME, our_owner="z")

    for _ in range(3):  # the first listing comes before the webhook has heard of it, and the next one waits for them
        assert us.settle([])
    assert view.held() == rows_of(theirs, "a")
    assert them.settle([])
    view.add([BY_HAND])
    for loop in (us, them):
        assert loop.settle([])

    assert view.held() == {BY_HAND}


def test_who_has_lost_a_name_to_another_gets_it_when_that_one_gives_it_up(view: UnifiView, cluster: Cluster) -> None:
    (_, us), (_, them) = cluster("z"), cluster("a")
    write_at_the_same_moment(view, (us, OURS), (them, OURS))
    assert us.settle(OURS)

    assert them.settle([])

    assert_can_have_and_leave_it(us, view)


@pytest.mark.parametrize("view", ["v2"], indirect=True)
def test_two_that_share_a_state_directory_by_mistake_leave_each_other_the_ownership_records(view: UnifiView) -> None:
    """One of them followed a note of the other, of a value that was another one meanwhile."""
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
def test_what_comes_to_a_name_under_an_ownership_record_of_another_cluster_is_not_nobodys_when_that_goes(
    view: UnifiView, cluster: Cluster
) -> None:
    """external-dns 0.19 or newer sends no ownership record where there is one, whosever it is."""
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
def test_who_has_a_name_may_change_its_type_although_another_wanted_that_in_vain_before(
    view: UnifiView, cluster: Cluster
) -> None:
    """The other one left an ownership record of that type, and wants the name still."""
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
def test_who_gives_up_a_record_whose_name_another_one_has_claimed_in_vain_removes_it(
    view: UnifiView, cluster: Cluster
) -> None:
    """Each removed its ownership record for that of the other, and the record was nobody's."""
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
