"""Several passes of the client model in a row, as in the loop of external-dns, with every response kept.

An error that external-dns would survive (`SoftError`) is noted, and the next pass follows; one that would make it exit
(`HardError`) is raised.
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
    """external-dns with registry `txt`. `replies` are all responses so far."""

    def __init__(self, url: str, owner_id: str = OWNER_ID, planner: Planner | None = None) -> None:
        super().__init__(url, planner, TxtRegistry(owner_id))
        self.replies: list[Reply] = []

    def try_pass(self, desired: Iterable[Endpoint]) -> Pass | SoftError:
        try:
            return self.reconcile(desired)
        except SoftError as error:
            return error

    def settle(self, desired: Sequence[Endpoint], max_passes: int = MAX_PASSES) -> bool:
        """Make passes until one has nothing to do; returns False if none of `max_passes` did."""
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
    """Check that no response makes external-dns exit, and that each refusal explains itself in the error format."""
    for reply in replies:
        assert reply.status_code in SURVIVED, reply
        if reply.status_code >= 500:
            problem = json.loads(reply.body)
            assert sorted(problem) == ["error", "message"], reply
            assert problem["error"], reply
            assert problem["message"], reply


def endpoint(name: str, record_type: str, *targets: str, ttl_s: int = 0) -> Endpoint:
    """An endpoint as a source of external-dns creates it: labelled with its originating object."""
    return Endpoint(name, record_type, targets, ttl_s, labels={"resource": f"crd/tests/{record_type}-{name}".lower()})


def rows_of(desired: Iterable[Endpoint], owner_id: str = OWNER_ID) -> set[HeldRow]:
    """The rows of endpoints in canonical spelling, including ownership records."""
    rows = set()
    for each in desired:
        rows |= {HeldRow(each.dns_name, each.record_type, target, each.ttl_s) for target in each.targets}
        rows.add(ownership_row(each, owner_id))
    return rows


def ownership_row(each: Endpoint, owner_id: str = OWNER_ID) -> HeldRow:
    return HeldRow(ownership_name(each), "TXT", heritage({**each.labels, "owner": owner_id}))
