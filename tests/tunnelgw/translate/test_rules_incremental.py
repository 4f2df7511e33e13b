"""What is computed again for routes and backends when something changes: what depends on it, and no more."""

from typing import Any

from proxy.document import Backend
from tests.tunnelgw.golden.certificates import with_certificates
from tests.tunnelgw.translate.world import NAMESPACE, object_of, queries_of, service
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.model.snapshot import Entry, Snapshot, index_entries
from tunnelgw.translate.backends import BackendId, backend
from tunnelgw.translate.rules import RouteId, route_content

GATEWAY = Key(NAMESPACE, "gw")
ROUTES = 200


def key(name: str) -> Key:
    return Key(NAMESPACE, name)


def route(name: str, *refs: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "HTTPRoute", "metadata": {"name": name}, "spec": {"rules": [{"backendRefs": list(refs)}]}}


class Site:
    """Many routes to one Service, kept up to date."""

    def __init__(self, *more: dict[str, Any]) -> None:
        self._objects = {}
        routes = [route(f"r{number}", {"name": "web", "port": 80}) for number in range(ROUTES)]
        for plain in (*routes, *service("web", ["10.0.0.1"]), *more):
            kind, item = object_of(plain)
            self._objects[kind, item.key] = item
        self.queries = queries_of(self._snapshot())
        for kind, place in self._objects:
            if kind is Kind.HTTP_ROUTE:
                self.queries.keep(route_content, RouteId(kind, place, GATEWAY))
        self.backend = BackendId(Kind.SERVICE, key("web"), 80)
        self.queries.keep(backend, self.backend)

    def edit(self, *plain: dict[str, Any]) -> tuple[set[Any], int]:
        """The questions whose answers changed, and how many were asked again."""
        changed: set[Entry] = set()
        for edited in plain:
            kind, item = object_of(edited)
            versions = [self._objects.get((kind, item.key)), item]
            self._objects[kind, item.key] = item
            changed.add(Entry(kind, item.key))
            changed |= {Entry(*entry) for version in versions if version for entry in index_entries(version)}
        before = self.queries.evaluations
        answered = self.queries.update(self._snapshot(), changed)
        return answered, self.queries.evaluations - before

    def _snapshot(self) -> Snapshot:
        return Snapshot.of((kind, item) for (kind, _), item in self._objects.items())


def test_endpoints_change_their_backend_and_no_route() -> None:
    site = Site()

    answered, evaluations = site.edit(service("web", ["10.0.0.1", "10.0.0.2"])[1])

    assert answered == {(backend, site.backend)}
    assert evaluations == 1
    changed = site.queries.keep(backend, site.backend)
    assert changed == Backend("apps/web:80", ("10.0.0.1:8080", "10.0.0.2:8080"))


def test_a_service_with_new_labels_only_changes_no_answer() -> None:
    site = Site()
    labelled = service("web")[0]
    labelled["metadata"]["labels"] = {"team": "x"}

    assert site.edit(labelled) == (set(), 1)


def test_another_protocol_of_a_service_changes_its_routes_only_if_they_cannot_use_it() -> None:
    site = Site()

    answered, _ = site.edit(service("web", appProtocol="kubernetes.io/h2c")[0])
    assert answered == {(backend, site.backend)}

    answered, _ = site.edit(service("web", appProtocol="smtp")[0])
    assert len(answered) == ROUTES + 1


def test_a_policy_changes_the_backend_and_no_route() -> None:
    site = Site()
    policy = {
        "kind": "BackendTLSPolicy",
        "metadata": {"name": "tls"},
        "spec": {
            "targetRefs": [{"group": "", "kind": "Service", "name": "web"}],
            "validation": {"hostname": "web.internal", "wellKnownCACertificates": "System"},
        },
    }

    answered, _ = site.edit(policy)

    assert answered == {(backend, site.backend)}
    assert site.queries.keep(backend, site.backend).protocol == "https"


def test_a_grant_concerns_only_routes_for_which_it_makes_a_difference() -> None:
    refs = [{"name": "far", "namespace": "other", "port": 80}, {"name": "farther", "namespace": "other", "port": 80}]
    site = Site(
        *service("far", namespace="other"),
        *service("farther", namespace="other"),
        *(route(f"to-{ref['name']}", ref) for ref in refs),
    )
    grant: dict[str, Any] = {
        "kind": "ReferenceGrant",
        "metadata": {"name": "one", "namespace": "other"},
        "spec": {
            "from": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": NAMESPACE}],
            "to": [{"group": "", "kind": "Service", "name": "far"}],
        },
    }

    answered, evaluations = site.edit(grant)

    assert answered == {(route_content, RouteId(Kind.HTTP_ROUTE, key("to-far"), GATEWAY))}
    assert evaluations < 10
    revoked = {**grant, "spec": {**grant["spec"], "to": [{"group": "", "kind": "Service", "name": "none"}]}}
    assert site.edit(revoked)[0] == answered
    content = site.queries.keep(route_content, RouteId(Kind.HTTP_ROUTE, key("to-far"), GATEWAY))
    assert [finding.reason for finding in content.findings] == ["RefNotPermitted"]


def test_one_route_among_many_is_translated_alone() -> None:
    site = Site()

    answered, evaluations = site.edit(route("r7", {"name": "web", "port": 80}, {"name": "gone", "port": 80}))

    assert answered == {(route_content, RouteId(Kind.HTTP_ROUTE, key("r7"), GATEWAY))}
    assert evaluations <= 5


def test_a_new_ca_certificate_in_a_configmap_reaches_the_backends_that_trust_it() -> None:
    policy = {
        "kind": "BackendTLSPolicy",
        "metadata": {"name": "tls"},
        "spec": {
            "targetRefs": [{"group": "", "kind": "Service", "name": "web"}],
            "validation": {
                "hostname": "web.internal",
                "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "ca"}],
            },
        },
    }
    first, second = with_certificates(["$ca:one", "$ca:two"])
    config_map = {"kind": "ConfigMap", "metadata": {"name": "ca"}, "data": {"ca.crt": first}}
    site = Site(policy, config_map)
    tls = site.queries.keep(backend, site.backend).tls
    assert tls
    assert tls.ca == first

    answered, _ = site.edit({**config_map, "data": {"ca.crt": second}})

    assert answered == {(backend, site.backend)}
    tls = site.queries.keep(backend, site.backend).tls
    assert tls
    assert tls.ca == second

    site.edit({**config_map, "data": {"ca.crt": "nonsense"}})

    assert site.queries.keep(backend, site.backend) == Backend("apps/web:80")
