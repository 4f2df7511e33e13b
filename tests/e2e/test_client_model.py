"""Passes of the client model through the real daemon, for both spellings of Changes, both registries, and each store.

The model needs no Go toolchain, so these run everywhere; `test_external_dns` does the same with the real program.
"""

from collections.abc import Iterator, Mapping

import msgspec
import pytest

from dnswebhook.model import Endpoint
from tests.support.client_json import Generation
from tests.support.client_model import ClientModel
from tests.support.client_plan import Planner, Policy
from tests.support.client_registry import TxtRegistry
from tests.support.daemon import Daemon
from tests.support.desired import DESIRED, Wanted, ownership_rows_of, rows_of
from tests.support.scene import changed
from tests.support.storeviews import StoreView
from tests.support.webhook_client import WebhookClient

OWNER_ID = "client-model"
NAMESPACE = "tests"
ALL_TYPES = frozenset({"A", "AAAA", "CNAME", "TXT", "MX", "SRV", "NS", "PTR", "NAPTR", "DNAME"})

generations = pytest.mark.parametrize("generation", Generation, ids=lambda each: each.name.lower())
registries = pytest.mark.parametrize("registry", [TxtRegistry(OWNER_ID), None], ids=["txt", "noop"])


@pytest.fixture
def webhook_url(store: StoreView) -> Iterator[str]:
    """The API of a daemon on `store`, in the state in which external-dns finds it."""
    with Daemon.dnswebhook(store.env) as daemon:
        with WebhookClient(daemon.url("api")) as client:
            assert client.list_records().status_code == 200, daemon.tail
        yield daemon.url("api")
        assert daemon.stop() == 0, daemon.tail


def endpoints(desired: Mapping[str, Wanted]) -> list[Endpoint]:
    """With the labels of external-dns's `crd` source."""
    return [
        msgspec.structs.replace(each.endpoint, labels={"resource": f"crd/{NAMESPACE}/{name}"})
        for name, each in desired.items()
    ]


def client_of(url: str, registry: TxtRegistry | None, generation: Generation, policy: Policy) -> ClientModel:
    client = ClientModel(url, Planner(policy=policy, managed_types=ALL_TYPES), registry, generation)
    client.negotiate()
    return client


@generations
@registries
def test_one_pass_writes_everything_and_the_next_changes_nothing(
    webhook_url: str, store: StoreView, registry: TxtRegistry | None, generation: Generation
) -> None:
    client = client_of(webhook_url, registry, generation, Policy.SYNC)
    ownership = ownership_rows_of(DESIRED, store.label, OWNER_ID, NAMESPACE) if registry else set()

    client.reconcile(endpoints(DESIRED))

    assert store.held() == rows_of(DESIRED, store.label) | ownership
    assert client.reconcile(endpoints(DESIRED)).is_no_op

    client.reconcile([])

    assert store.held() == set()
    assert client.reconcile([]).is_no_op


@generations
def test_a_changed_target_is_one_write(webhook_url: str, store: StoreView, generation: Generation) -> None:
    client = client_of(webhook_url, TxtRegistry(OWNER_ID), generation, Policy.SYNC)
    client.reconcile(endpoints(DESIRED))
    now = {**DESIRED, "a-one": changed(DESIRED, "a-one", ["192.0.2.101"])}

    store.start_counting()
    client.reconcile(endpoints(now))

    assert store.writes == 1
    assert rows_of(now, store.label) <= store.held()
    assert client.reconcile(endpoints(now)).is_no_op


@registries
def test_upsert_only_deletes_nothing(webhook_url: str, store: StoreView, registry: TxtRegistry | None) -> None:
    client = client_of(webhook_url, registry, Generation.CAMEL, Policy.UPSERT_ONLY)
    client.reconcile(endpoints(DESIRED))
    before = store.held()

    assert client.reconcile([]).is_no_op
    assert store.held() == before


def test_records_of_another_owner_are_left_alone(webhook_url: str, store: StoreView) -> None:
    other = client_of(webhook_url, TxtRegistry("other"), Generation.CAMEL, Policy.SYNC)
    other.reconcile(endpoints(DESIRED))
    before = store.held()

    mine = client_of(webhook_url, TxtRegistry(OWNER_ID), Generation.CAMEL, Policy.SYNC)

    assert mine.reconcile([]).is_no_op
    assert store.held() == before
