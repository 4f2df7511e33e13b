"""A provider on a store in memory, as tests of its verbs call it."""

import json
from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry

from dnswebhook.deadline import Deadline
from dnswebhook.domains import DomainFilter, ProtectedNames
from dnswebhook.journal import Journal
from dnswebhook.metrics import Metrics
from dnswebhook.model import Changes, Endpoint, Record
from dnswebhook.provider import Policy, Provider
from tests.support.memory_store import WAIT_S, MemoryStore


def a(name: str, *targets: str) -> Endpoint:
    return Endpoint(name, "A", targets or ("192.0.2.1",))


def row(name: str, value: str = "192.0.2.1", **more: Any) -> Record:
    return Record(name, name, "A", value, **more)


def hosts(count: int) -> list[str]:
    return [f"host-{number:02}.example.com" for number in range(count)]


class Rig:
    """A provider on a store in memory, with its metrics."""

    def __init__(self, store: MemoryStore, **policy: Any) -> None:
        self.store = store
        self.registry = CollectorRegistry()
        settings = {"domain_filter": DomainFilter(), "protected": ProtectedNames(), **policy}
        self.journal = Journal()
        self.provider = Provider(store, Policy(**settings), Metrics(self.registry), self.journal)

    def apply(
        self, is_caller_gone: Callable[[], bool] = lambda: False, deadline_s: float = WAIT_S, **lists: Any
    ) -> None:
        changes = Changes(**{name: tuple(members) for name, members in lists.items()})
        self.provider.apply(changes, Deadline.after(deadline_s), is_caller_gone)

    def listed(self) -> dict[str, list[str]]:
        answer = json.loads(self.provider.records(Deadline.after(WAIT_S), is_wrapped=False))
        return {endpoint["dnsName"]: endpoint["targets"] for endpoint in answer}

    def loses_all(self) -> None:
        """Somebody removes every row by hand."""
        for row in list(self.store.rows.values()):
            self.store.delete(row, Deadline.after(WAIT_S))

    def metric(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)


Build = Callable[..., Rig]
