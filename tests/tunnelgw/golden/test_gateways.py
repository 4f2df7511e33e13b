"""Golden cases of classes, Gateways, listeners, ListenerSets and the attachment of routes: one question a file.

rows       which rows of rows.yaml it covers
config, services, tls, ca, objects   see given.py
expect     by object: `Kind namespace/name`, for a listener with its name behind it, for a further parentRef of a route
           with its number. Conditions that differ from those of a healthy object, by type:
           `Status Reason: part of message`. Also addresses, kinds, attached, sets, plane, tunnel. `unjudged`: there is
           no verdict. `orphaned`: a set without a Gateway, or a Gateway without a class. Objects that are not named
           have the conditions of a healthy object
listeners  fields (a.b for b of a) of listeners in the document of the shared data plane; `only: true`: no others,
           `given`: some value
routes     likewise of routes
hosts      hostnames that tunnels route to us
requests   `ask` (method and URL; then `tunnel` or the address asked; then `as` and the name of the TLS handshake, if it
           is another one) and `to`: a backend or a status code
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
import yaml

from proxy import document, routing
from proxy.doors.misdirected import Misdirection
from tests.tunnelgw.golden.given import FIELDS, snapshot_of
from tests.tunnelgw.translate.world import outcome, translation_of
from tunnelgw.model.conditions import Finding
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.model.snapshot import Snapshot
from tunnelgw.translate.pipeline import Translation
from tunnelgw.translate.proxyconfig import DataPlaneDocument
from tunnelgw.translate.verdicts import (
    ClassVerdict,
    GatewayVerdict,
    ListenerSetVerdict,
    ListenerVerdict,
    ObjectId,
    OrphanVerdict,
    RouteVerdict,
)

CASES = sorted((Path(__file__).parent / "gateways").glob("*.yaml"))
_FIELDS = FIELDS | {"rows", "expect", "listeners", "routes", "hosts", "requests"}
_FACTS = ("addresses", "kinds", "attached", "sets", "plane", "tunnel")
"""What is described beside conditions. Compared only if the case names it."""
_HEALTHY = {
    "Accepted": "True Accepted",
    "ResolvedRefs": "True ResolvedRefs",
    "Conflicted": "False NoConflicts",
    "SupportedVersion": "True SupportedVersion",
}
"""The conditions of an object without problems, as far as its kind has them."""


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_gateways_and_listeners(path: Path) -> None:
    case = yaml.safe_load(path.read_text())
    assert case["rows"]
    assert not case.keys() - _FIELDS
    snapshot = snapshot_of(case)
    translation = translation_of(snapshot)

    _check_expected(_described(translation, snapshot), case.get("expect", {}))
    shared = _decoded(translation)
    _check_parts("listeners", shared, case.get("listeners", {}))
    _check_parts("routes", shared, case.get("routes", {}))
    if "hosts" in case:
        hosts = {tunnel: sorted(translation.hosts(tunnel)) for tunnel in translation.tunnels}
        assert hosts == case["hosts"]
    for request in case.get("requests", []):
        _check_request(shared, **request)


def _described(translation: Translation, snapshot: Snapshot) -> dict[str, dict[str, Any] | str]:
    """The verdict about each object and each listener, in the words of the cases."""
    seen: dict[str, dict[str, Any] | str] = {}
    for kind in (Kind.GATEWAY_CLASS, Kind.GATEWAY, Kind.LISTENER_SET, Kind.HTTP_ROUTE, Kind.GRPC_ROUTE):
        for key in snapshot.all(kind):
            id_ = ObjectId(kind, key)
            match translation.verdict(id_):
                case None:
                    seen[str(id_)] = "unjudged"
                case ClassVerdict() as verdict:
                    seen[str(id_)] = _conditions(verdict.findings)
                case GatewayVerdict() as verdict:
                    addresses = [f"{address.type} {address.value}" for address in verdict.addresses]
                    seen[str(id_)] = {
                        **_conditions(verdict.findings),
                        "addresses": addresses,
                        "sets": verdict.attached_listener_sets,
                        "plane": verdict.data_plane,
                        "tunnel": verdict.tunnel,
                    }
                    seen |= {f"{id_} {listener.name}": _described_listener(listener) for listener in verdict.listeners}
                case ListenerSetVerdict() as verdict:
                    seen[str(id_)] = _conditions(verdict.findings)
                    seen |= {f"{id_} {listener.name}": _described_listener(listener) for listener in verdict.listeners}
                case OrphanVerdict():
                    seen[str(id_)] = "orphaned"
                case RouteVerdict() as verdict:
                    seen[str(id_)] = "unjudged"
                    for place, parent in enumerate(verdict.parents):
                        seen[f"{id_} {place}" if place else str(id_)] = _conditions(parent.findings)
    return seen


def _described_listener(verdict: ListenerVerdict) -> dict[str, Any]:
    kinds = [f"{kind.group.partition('.')[0]}/{kind.kind}" for kind in verdict.supported_kinds]
    return {**_conditions(verdict.findings), "kinds": kinds, "attached": verdict.attached_routes}


def _conditions(findings: tuple[Finding, ...]) -> dict[str, str]:
    types = [str(finding.type) for finding in findings]
    assert len(types) == len(set(types)), types
    return {str(finding.type): f"{finding.status} {finding.reason}: {finding.message}" for finding in findings}


def _check_expected(seen: dict[str, dict[str, Any] | str], expect: dict[str, Any]) -> None:
    assert expect.keys() <= seen.keys(), seen.keys()
    for name, described in seen.items():
        wanted = expect.get(name, {})
        if isinstance(described, str) or isinstance(wanted, str):
            assert described == wanted, (name, described)
            continue
        conditions = {type_: text for type_, text in described.items() if type_ not in _FACTS}
        for type_ in conditions.keys() | (wanted.keys() - set(_FACTS)):
            text = wanted.get(type_, _HEALTHY.get(type_, "absent"))
            head, _, part = text.partition(":")
            assert conditions.get(type_, "absent").partition(":")[0] == head, (name, type_, described)
            assert part.strip() in conditions.get(type_, ""), (name, type_, described)
        for fact in wanted.keys() & set(_FACTS):
            assert described[fact] == wanted[fact], (name, fact)


def _decoded(translation: Translation) -> document.Document:
    """The shared document; every document must be one that the proxy takes, in the proxy's own words."""
    for content in translation.documents.values():
        text = content.encode(7)
        assert msgspec.json.encode(document.decode(text)) == text
    shared: DataPlaneDocument = translation.documents["shared"]
    return document.decode(shared.encode(7))


def _check_parts(group: str, shared: document.Document, wanted: dict[str, Any]) -> None:
    """`group`: a list of the document whose members have names."""
    plain = msgspec.json.decode(msgspec.json.encode(shared)).get(group, [])
    by_name = {part["name"]: part for part in plain}
    if wanted.pop("only", False):
        assert by_name.keys() == wanted.keys()
    for name, fields in wanted.items():
        assert name in by_name, by_name.keys()
        for field, value in fields.items():
            seen = _field(by_name[name], field)
            assert (value == "given" and seen is not None) or seen == value, (name, field, by_name[name].keys())


def _field(part: dict[str, Any], path: str) -> Any:
    """`tls.clientValidation.mode`; None where there is none."""
    value: Any = part
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _check_request(shared: document.Document, ask: str, to: str | int) -> None:
    method, url, at, *server_name = ask.replace(" as ", " ").split()
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    tunnel_door = routing.TUNNEL_HTTPS if parts.scheme == "https" else routing.TUNNEL_HTTP
    door = tunnel_door if at == "tunnel" else routing.socket_door(at, port)
    table = routing.compile_table(shared)
    if door not in table.doors:
        assert to == "nobody", ask
        return
    if server_name:
        entry = SimpleNamespace(entrance=table.doors[door], admission_to=lambda _: document.UNSET)
        if Misdirection(server_name[0].encode(), entry, document.UNSET).is_misdirected(parts.netloc.encode()):
            assert to == 421, ask
            return
    head = routing.PlainHead(method.encode(), parts.netloc.encode(), (parts.path or "/").encode(), ())
    assert outcome(table, door, head, 0.0)["to"] == to, ask


def test_an_object_that_does_not_exist_has_no_verdict() -> None:
    translation = translation_of(Snapshot.of([]))

    assert translation.verdict(ObjectId(Kind.GATEWAY, Key("apps", "none"))) is None
    assert translation.verdict(ObjectId(Kind.SERVICE, Key("apps", "none"))) is None
    assert translation.documents["shared"].encode(1) == b'{"version":1}'
