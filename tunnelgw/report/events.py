"""Events about what people must see: problems that do not pass by themselves, or that have lasted.

    credentials refused, deliveries that keep failing   on the Gateways concerned
    hostnames that somebody else has at the provider    on their routes
    objects that cannot be read                         on themselves

Repeated Events are combined by the recorder. Only the reconciler's thread calls this module.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

from tunnelgw.deliver.receipts import Receipt
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Object, ObjectMeta
from tunnelgw.model.snapshot import Entry
from tunnelgw.sources.tables import Unreadable

LASTING_ATTEMPTS = 3


class Recorder(Protocol):
    """Never blocks, never raises."""

    def warn(self, kind: Kind, item: Object, reason: str, note: str) -> bool:
        """`reason`: one word in camel case. False: the Event was not accepted, and may be tried again."""


class WarningEvents:
    """Without a recorder nothing is recorded, and people have only the logs."""

    def __init__(self, recorder: Recorder | None = None) -> None:
        self._recorder = recorder
        self._unreadable: dict[Entry, Unreadable] = {}

    def failures(self, gateway: Object, receipts: Iterable[Receipt]) -> None:
        for receipt in receipts:
            reason = "CredentialsRefused" if receipt.is_credential_problem else "DeliveryFailed"
            self._warn(Kind.GATEWAY, gateway, reason, f"{receipt.target}: {receipt.error}")

    def conflict(self, kind: Kind, route: Object, message: str) -> None:
        self._warn(kind, route, "HostnameConflict", message)

    def unreadable(self, found: Mapping[Entry, Unreadable]) -> None:
        """`found`: all objects that are left out of snapshots now."""
        told: dict[Entry, Unreadable] = {}
        for entry, problem in found.items():
            item = Object(metadata=ObjectMeta(name=entry.key.name, namespace=entry.key.namespace))
            note = f"{entry.table} {entry.key} cannot be read and is left out: {problem.reason}"
            is_known = self._unreadable.get(entry) == problem
            if is_known or self._warn(Kind(entry.table), item, "Unreadable", note):
                told[entry] = problem
        self._unreadable = told

    def _warn(self, kind: Kind, item: Object, reason: str, note: str) -> bool:
        return self._recorder is None or self._recorder.warn(kind, item, reason, note)


def has_lasted(receipt: Receipt) -> bool:
    return bool(receipt.failure) and (receipt.is_credential_problem or receipt.attempts >= LASTING_ATTEMPTS)
