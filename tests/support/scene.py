"""The whole chain as one object: API server -> external-dns -> recorder -> dnswebhook -> a store with foreign rows.

`open_scene` starts the daemon as a real process and provides everything that a test acts on or looks at. The store
contains other people's rows before the daemon sees it; every expectation of a test includes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec.structs import replace as replace_field

from tests.kube.kubeenv import Environment
from tests.kube.processes import wait_until
from tests.support.daemon import Daemon
from tests.support.desired import (
    EMBEDDED,
    HeldRow,
    Wanted,
    ownership_rows_of,
    rows_of,
)
from tests.support.dns_endpoints import DnsEndpoints, KubeApi
from tests.support.external_dns import SETTLED_S, ExternalDns
from tests.support.recorder import WebhookRecorder
from tests.support.storeviews import StoreView
from tests.support.webhook_client import WebhookClient

FOREIGN = (
    HeldRow("nas.lan", "A", "192.0.2.240"),
    HeldRow("by-hand.example.org", "A", "192.0.2.241", 60),
    HeldRow("by-hand.example.org", "A", "192.0.2.242", 60),
    HeldRow("by-hand.example.org", "TXT", '"kept, by hand"'),
    HeldRow("by-hand.example.org", "MX", "10 nas.lan"),
    HeldRow("_http._tcp.by-hand.example.org", "SRV", "1 2 80 nas.lan."),
    HeldRow("*.by-hand.example.org", "AAAA", "2001:db8::240"),
    HeldRow("theirs.example.org", "CNAME", "elsewhere.example.net"),
    HeldRow("cname-theirs.example.org", "TXT", '"heritage=external-dns,external-dns/owner=somebody-else"'),
)
"""Created by hand, or owned by another external-dns."""
FOREIGN_TO_CONTROLLERS = (
    HeldRow("one.example.org", "A", "192.0.2.243", 0, "disabled"),
    HeldRow("printer.example.org", "A", "192.0.2.244", 0, "derived"),
)


def foreign_rows(store: str) -> set[HeldRow]:
    return set(FOREIGN) if store == EMBEDDED else {*FOREIGN, *FOREIGN_TO_CONTROLLERS}


@dataclass(frozen=True, slots=True)
class Scene:
    store: StoreView
    daemon: Daemon
    recorder: WebhookRecorder
    kube_api: KubeApi
    objects: DnsEndpoints
    external_dns: ExternalDns

    @property
    def foreign(self) -> set[HeldRow]:
        return foreign_rows(self.store.label)

    def expected(self, desired: Mapping[str, Wanted]) -> set[HeldRow]:
        """Everything that the store holds once `desired` is applied."""
        rows = self.foreign | rows_of(desired, self.store.label)
        if self.external_dns.registry == "txt":
            owner_id, namespace = self.external_dns.owner_id, self.objects.namespace
            rows |= ownership_rows_of(desired, self.store.label, owner_id, namespace)
        return rows

    def desire(self, desired: Mapping[str, Wanted]) -> None:
        """Create one DNSEndpoint object for each."""
        self.objects.create_all({name: each.endpoint for name, each in desired.items()})

    def start_counting(self) -> None:
        """Restart the counts of `recorder` and `store.writes`."""
        self.recorder.forget()
        self.store.start_counting()

    def apply_once(self) -> None:
        outcome = self.external_dns.once()
        assert outcome.exit_code == 0, f"{outcome.log}\n{self.daemon.tail}"

    def until_asked_for(self, desired: Mapping[str, Wanted]) -> None:
        """Wait until external-dns's loop has these: it watches the API server, whose events may be late."""
        wanted = {
            f"crd/{self.objects.namespace}/{name}": (sorted(each.endpoint.targets), each.endpoint.ttl_s)
            for name, each in desired.items()
        }
        assert wait_until(lambda: self._asked_for() == wanted, SETTLED_S), f"not asked for within {SETTLED_S:g} s"

    def _asked_for(self) -> Mapping[str, tuple[list[str], int]]:
        """Targets and TTL by object, in the last pass."""
        calls = [call for call in self.recorder.calls if call.path == "/adjustendpoints"]
        return {
            each["labels"]["resource"]: (sorted(each["targets"]), each.get("recordTTL", 0))
            for each in (calls[-1].sent if calls else ())
        }

    def desiring_nothing(self) -> ExternalDns:
        return self.external_dns.in_namespace(self.kube_api.create_namespace("empty"))


Stage = Callable[..., AbstractContextManager[Scene]]
"""`open_scene` for the store and the API server of a test; takes its keyword arguments."""


@contextmanager
def open_scene(
    store: StoreView,
    program: Path,
    kube: Environment,
    kube_api: KubeApi,
    *,
    registry: str = "txt",
    policy: str = "sync",
    env: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (),
) -> Iterator[Scene]:
    """Start everything; on leaving, the daemon must stop with exit code 0."""
    with Daemon.dnswebhook({**store.env, **(env or {})}, arguments) as daemon:
        with WebhookRecorder(daemon.url("api")) as recorder, WebhookClient(recorder.url) as client:
            assert client.list_records().status_code == 200, daemon.tail  # opens the embedded store
            store.add(foreign_rows(store.label))
            objects = DnsEndpoints(kube_api, kube_api.create_namespace("desired"))
            external_dns = ExternalDns(
                program, recorder.url, kube.kubeconfig, objects.namespace, registry=registry, policy=policy
            )
            scene = Scene(store, daemon, recorder, kube_api, objects, external_dns)
            scene.start_counting()
            yield scene
        assert daemon.stop() == 0, daemon.tail


def changed(
    desired: Mapping[str, Wanted], name: str, targets: Iterable[str] | None = None, ttl_s: int | None = None
) -> Wanted:
    """The set of object `name` with other targets (in canonical spelling) or another TTL."""
    each = desired[name]
    endpoint = replace_field(
        each.endpoint,
        targets=each.endpoint.targets if targets is None else tuple(targets),
        ttl_s=each.endpoint.ttl_s if ttl_s is None else ttl_s,
    )
    return replace(each, endpoint=endpoint, values=each.values if targets is None else tuple(targets))
