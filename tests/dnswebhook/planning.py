"""Ways to say changes, rows and plans in a line."""

from collections.abc import Collection

from dnswebhook.domains import DomainFilter, ProtectedNames
from dnswebhook.model import Changes, Endpoint, Origin, Record, RecordSpec
from dnswebhook.notes import Note
from dnswebhook.operations import Create, Plan, Step
from dnswebhook.past import Past
from dnswebhook.plan import make_plan
from dnswebhook.served import Served
from tests.support.memory_store import CAPABILITIES

EVERYTHING = DomainFilter()
NOTHING_PROTECTED = ProtectedNames()
NOTHING_SERVED = Served(())
NO_PAST = Past((), (), (), ())


def a(name: str, *targets: str, ttl_s: int = 0) -> Endpoint:
    return Endpoint(name, "A", targets, ttl_s)


def cname(name: str, *targets: str) -> Endpoint:
    return Endpoint(name, "CNAME", targets)


def ownership(of: str, kind: str) -> Endpoint:
    text = '"heritage=external-dns,external-dns/owner=default,external-dns/resource=ingress/x/y"'
    return Endpoint(f"{kind.lower()}-{of}", "TXT", (text,), labels={"ownedRecord": of})


def row(
    name: str,
    kind: str,
    value: str,
    ttl_s: int = 0,
    *,
    is_enabled: bool = True,
    origin: Origin = Origin.USER_DEFINED,
) -> Record:
    return Record(f"{name}/{kind}/{value}", name, kind, value, ttl_s, is_enabled, origin)


def planned(
    changes: Changes,
    *rows: Record,
    domain_filter: DomainFilter = EVERYTHING,
    protected: ProtectedNames = NOTHING_PROTECTED,
    told: Collection[Record] | None = (),
    noted: Collection[Note] = (),
    removed: Collection[Note] = (),
) -> Plan:
    return make_plan(changes, rows, CAPABILITIES, domain_filter, protected, Past(told, noted, removed, ()))


def steps(plan: Plan) -> list[Step]:
    return [step for strand in plan.strands for step in strand.steps]


def created(step: Step) -> RecordSpec:
    assert isinstance(step.operation, Create)
    return step.operation.spec


def operations(plan: Plan) -> list[object]:
    return [step.operation for step in steps(plan)]
