"""Several passes of the client model in a row, as the loop of external-dns makes them, with every answer kept.

What external-dns would survive (`SoftError`) is noted and the next pass goes on; what would end it (`HardError`) is
raised.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from dnswebhook.model import Endpoint
from tests.support.client_model import ClientModel, Pass, Reply, SoftError
from tests.support.client_plan import Planner
from tests.support.client_registry import TxtRegistry, heritage, ownership_name
from tests.support.desired import HeldRow

OWNER_ID = "tests"
MAX_PASSES = 6
SURVIVED = frozenset({200, 204, *range(500, 511)})


class Loop(ClientModel):
    """external-dns with registry `txt`. `replies` are all answers so far."""

    def __init__(self, url: str, owner_id: str = OWNER_ID, planner: Planner | None = None) -> None:
        super().__init__(url, planner, TxtRegistry(owner_id))
        self.replies: list[Reply] = []

    def try_pass(self, desired: Iterable[Endpoint]) -> Pass | SoftError:
        try:
            return self.reconcile(desired)
        except SoftError as error:
            return error

    def settle(self, desired: Sequence[Endpoint], max_passes: int = MAX_PASSES) -> bool:
        """Passes until one has nothing to do; False when none of `max_passes` came to that."""
        for _ in range(max_passes):
            outcome = self.try_pass(desired)
            if isinstance(outcome, Pass) and outcome.is_no_op:
                return True
        return False

    def _call(self, method: str, path: str, body: bytes | None = None, *, accepts: bool = True) -> Reply:
        reply = super()._call(method, path, body, accepts=accepts)
        self.replies.append(reply)
        return reply


def assert_survived(replies: Iterable[Reply]) -> None:
    """No answer that would end external-dns, and each refusal says what is wrong in the one agreed shape."""
    for reply in replies:
        assert reply.status_code in SURVIVED, reply
        if reply.status_code >= 500:
            problem = json.loads(reply.body)
            assert sorted(problem) == ["error", "message"], reply
            assert problem["error"], reply
            assert problem["message"], reply


def endpoint(name: str, record_type: str, *targets: str, ttl_s: int = 0) -> Endpoint:
    """As a source of external-dns makes it: labelled with the object that it came from."""
    return Endpoint(name, record_type, targets, ttl_s, labels={"resource": f"crd/tests/{record_type}-{name}".lower()})


def rows_of(desired: Iterable[Endpoint], owner_id: str = OWNER_ID) -> set[HeldRow]:
    """The rows of endpoints in canonical spelling, ownership records included."""
    rows = set()
    for each in desired:
        rows |= {HeldRow(each.dns_name, each.record_type, target, each.ttl_s) for target in each.targets}
        rows.add(ownership_row(each, owner_id))
    return rows


def ownership_row(each: Endpoint, owner_id: str = OWNER_ID) -> HeldRow:
    return HeldRow(ownership_name(each), "TXT", heritage({**each.labels, "owner": owner_id}))
