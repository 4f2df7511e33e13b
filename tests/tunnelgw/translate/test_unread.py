"""What is served and reported while a Secret, ConfigMap or configuration that an object newly names cannot be read."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest
from cryptography import x509

from proxy import document
from proxy.document import Backend
from tests.tunnelgw.deliver.test_targets import named_tunnels
from tests.tunnelgw.translate.pki import authority_pem, secret_data
from tests.tunnelgw.translate.world import NAMESPACE, WEB, in_words, object_of, service, translation_of
from tunnelgw.deliver.targets import Discovery
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.model.snapshot import Entry
from tunnelgw.options import DEFAULT_CONTROLLER
from tunnelgw.sources.store import Store
from tunnelgw.translate.gateways import SHARED
from tunnelgw.translate.policies import PolicyVerdict
from tunnelgw.translate.verdicts import ClassVerdict, GatewayVerdict, ListenerSetVerdict, ObjectId

Plain = dict[str, Any]
GATEWAY = ObjectId(Kind.GATEWAY, Key(NAMESPACE, "gw"))
SET = ObjectId(Kind.LISTENER_SET, Key(NAMESPACE, "set"))
POLICY = ObjectId(Kind.BACKEND_TLS_POLICY, Key(NAMESPACE, "tls"))
CLASS = [
    {
        "kind": "GatewayClass",
        "metadata": {"name": "ours"},
        "spec": {
            "controllerName": DEFAULT_CONTROLLER,
            "parametersRef": {"group": "tunnelgw.dev", "kind": "GatewayClassConfig", "name": "ours"},
        },
    },
    {
        "kind": "GatewayClassConfig",
        "metadata": {"name": "ours"},
        "spec": {"direct": {"addresses": ["192.0.2.1"]}},
    },
]


def pair(name: str) -> Plain:
    """A Secret with a certificate of its name."""
    data = secret_data(f"{name}.example")
    return {"kind": "Secret", "metadata": {"name": name}, "type": "kubernetes.io/tls", "data": data}


def bundle(name: str, pem: str = "") -> Plain:
    return {"kind": "ConfigMap", "metadata": {"name": name}, "data": {"ca.crt": pem or authority_pem()}}


def https(*secrets: str, name: str = "https", port: int = 443) -> Plain:
    refs = [{"name": secret} for secret in secrets]
    return {"name": name, "port": port, "protocol": "HTTPS", "tls": {"certificateRefs": refs}}


def gateway(*listeners: Plain, config: str = "", **tls: Any) -> Plain:
    spec = {"gatewayClassName": "ours", "listeners": listeners, "allowedListeners": {"namespaces": {"from": "Same"}}}
    ref = {"group": "tunnelgw.dev", "kind": "GatewayConfig", "name": config}
    infrastructure = {"infrastructure": {"parametersRef": ref}} if config else {}
    spec = {**spec, **infrastructure, **({"tls": tls} if tls else {})}
    return {"kind": "Gateway", "metadata": {"name": "gw"}, "spec": spec}


def listener_set(*listeners: Plain) -> Plain:
    spec = {"parentRef": {"name": "gw"}, "listeners": listeners}
    return {"kind": "ListenerSet", "metadata": {"name": "set"}, "spec": spec}


def clients_of(bundle_: str) -> Plain:
    """`tls.frontend`: the CA of valid client certificates."""
    ref = {"group": "", "kind": "ConfigMap", "name": bundle_}
    return {"default": {"validation": {"caCertificateRefs": [ref], "mode": "AllowValidOnly"}}}


def policy(**validation: Any) -> Plain:
    target = {"group": "", "kind": "Service", "name": "web"}
    spec = {"targetRefs": [target], "validation": {"hostname": "web.internal", **validation}}
    return {"kind": "BackendTLSPolicy", "metadata": {"name": "tls"}, "spec": spec}


def authorities(*names: str) -> Plain:
    return {"caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": name} for name in names]}


class World:
    """A store with all that is derived from it. What it asks a source for is found only by `read`."""

    def __init__(self, *plain: Plain, secret_namespaces: Collection[str] = ()) -> None:
        self._store = Store((), secret_namespaces=secret_namespaces)
        route = {
            "kind": "HTTPRoute",
            "metadata": {"name": "web"},
            "spec": {"parentRefs": [{"name": "gw"}], "rules": [{"backendRefs": [WEB]}]},
        }
        for item in (*CLASS, *service("web", ["10.0.0.1"]), route, *plain):
            self._store.upsert(*object_of(item))
        self.read(*plain)
        self._snapshot = self._store.take().snapshot
        self.translation = translation_of(self._snapshot)

    def read(self, *plain: Plain) -> None:
        """These can be read now; anything else that is unread does not exist."""
        found = {Entry(kind, item.key): item for kind, item in map(object_of, plain)}
        for entry in self._store.wait_unread(0.0):
            self._store.fill(entry, found.get(entry))

    def edit(self, *plain: Plain) -> None:
        for item in plain:
            self._store.upsert(*object_of(item))
        self.go_on()

    def delete(self, kind: Kind, name: str) -> None:
        self._store.delete(kind, Key(NAMESPACE, name))
        self.go_on()

    def lose(self, kind: Kind, *, is_lost: bool = True) -> None:
        """The source cannot follow a kind, or can again."""
        self._store.set_behind(kind, is_behind=is_lost)
        if self._store.wait(0.0):
            self.go_on()

    def go_on(self) -> None:
        change = self._store.take()
        self._snapshot = change.snapshot
        self.translation.update(change.snapshot, change.changed)

    def tunnels(self) -> set[str]:
        """Those that lead to us."""
        return {*named_tunnels(self._snapshot, Discovery(DEFAULT_CONTROLLER, "home"))}

    def document_of(self, data_plane: str) -> document.Document:
        return document.decode(self.translation.documents[data_plane].encode(1))

    def routes(self, data_plane: str) -> tuple[document.Route, ...]:
        return self.document_of(data_plane).routes

    def certificates(self, data_plane: str = SHARED) -> list[str]:
        """Of each listener with TLS, the names of the Secrets that they are from."""
        served = [listener.tls for listener in self.document_of(data_plane).listeners if listener.tls]
        return ["+".join(map(_name_in, tls.certificates)) for tls in served]

    def backend(self) -> Backend:
        (found,) = self.document.backends
        return found

    @property
    def document(self) -> document.Document:
        return self.document_of(SHARED)

    def listener_findings(self, owner: ObjectId = GATEWAY) -> list[str]:
        verdict = self.translation.verdict(owner)
        assert isinstance(verdict, GatewayVerdict | ListenerSetVerdict)
        return [
            each for each in in_words(verdict.listeners[0].findings) if "False" in each and "Conflicted" not in each
        ]

    def findings(self, owner: ObjectId = GATEWAY) -> list[str]:
        verdict = self.translation.verdict(owner)
        if isinstance(verdict, PolicyVerdict):
            found = verdict.ancestors[0].findings
        else:
            assert isinstance(verdict, GatewayVerdict)
            found = verdict.findings
        return [each for each in in_words(found) if "False" in each]


def _name_in(certificate: document.Certificate) -> str:
    (leaf, *_) = x509.load_pem_x509_certificates(certificate.certificate.encode())
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return names.get_values_for_type(x509.DNSName)[0].removesuffix(".example")


UNREAD = "could not be read yet; until then what was named before is used"
OUTSIDE = "is in a namespace whose Secrets the controller does not read (see --secret-namespaces)"


def test_a_certificate_in_a_namespace_whose_secrets_are_not_read_is_reported_as_such() -> None:
    world = World(gateway(https("cert")), secret_namespaces=["infra"])

    assert world.certificates() == []
    unusable, unresolved = world.listener_findings()
    assert unusable == "Programmed False Invalid: no certificateRef leads to a usable certificate"
    assert unresolved == (f"ResolvedRefs False InvalidCertificateRef: tls.certificateRefs: Secret apps/cert {OUTSIDE}")


def test_ca_certificates_in_a_namespace_whose_secrets_are_not_read_are_reported_as_such() -> None:
    ref = {"group": "", "kind": "Secret", "name": "authority"}
    listener = {"name": "http", "port": 80, "protocol": "HTTP"}
    world = World(gateway(listener), policy(caCertificateRefs=[ref]), secret_namespaces=["infra"])

    assert world.findings(POLICY)[-1].endswith(f"Secret apps/authority {OUTSIDE}"), world.findings(POLICY)


def test_a_listener_keeps_its_certificate_until_the_newly_named_one_is_read() -> None:
    world = World(gateway(https("old")), pair("old"))
    assert world.certificates() == ["old"]

    world.edit(gateway(https("new")))

    assert world.certificates() == ["old"]
    why = f"tls.certificateRefs: Secret apps/new {UNREAD}"
    assert world.listener_findings() == [f"ResolvedRefs False InvalidCertificateRef: {why}"]
    assert world.findings() == [f"ResolvedRefs False ListenersNotResolved: https: {why}; see listeners https"]
    world.read(pair("new"))
    world.go_on()
    assert world.certificates() == ["new"]
    assert world.listener_findings() == []


@pytest.mark.parametrize("found", [[], [{**pair("new"), "data": {}}]], ids=["missing", "broken"])
def test_a_listener_loses_its_certificate_when_the_newly_named_one_is_known_to_be_unusable(found: list[Plain]) -> None:
    world = World(gateway(https("old")), pair("old"))
    world.edit(gateway(https("new")))

    world.read(*found)
    world.go_on()

    assert world.certificates() == []
    assert world.listener_findings()[0] == "Programmed False Invalid: no certificateRef leads to a usable certificate"


def test_a_renewed_certificate_is_used_also_in_place_of_one_that_cannot_be_read() -> None:
    world = World(gateway(https("old")), pair("old"))
    world.edit(gateway(https("new")))

    world.edit({**pair("old"), "data": secret_data("renewed.example")})

    assert world.certificates() == ["renewed"]


def test_a_deleted_certificate_is_not_used_in_place_of_another() -> None:
    world = World(gateway(https("old")), pair("old"))
    world.edit(gateway(https("new")))

    world.delete(Kind.SECRET, "old")

    assert world.certificates() == []


def test_certificates_that_are_read_are_served_beside_those_from_before() -> None:
    world = World(gateway(https("old"), https("other", name="other", port=8443)), pair("old"), pair("other"))

    world.edit(gateway(https("other", "new"), https("other", name="other", port=8443)))

    assert world.certificates() == ["other+old", "other"]


def test_a_new_listener_waits_for_its_certificate() -> None:
    world = World(gateway(https("old")), pair("old"))

    world.edit(gateway(https("old"), https("new", name="more", port=8443)))

    assert world.certificates() == ["old"]


def test_a_listener_of_a_set_keeps_its_certificate_too() -> None:
    plain = {"name": "http", "port": 80, "protocol": "HTTP"}
    world = World(gateway(plain), listener_set(https("old")), pair("old"))

    world.edit(listener_set(https("new")))

    assert world.certificates() == ["old"]
    assert world.listener_findings(SET) == [
        f"ResolvedRefs False InvalidCertificateRef: tls.certificateRefs: Secret apps/new {UNREAD}"
    ]


def test_client_certificates_are_verified_as_before_until_the_newly_named_ca_is_read() -> None:
    world = World(gateway(https("old"), frontend=clients_of("old")), pair("old"), bundle("old"))
    (was,) = world.document.listeners

    world.edit(gateway(https("old"), frontend=clients_of("new")))

    assert world.document.listeners == (was,)
    assert world.listener_findings() == [
        f"ResolvedRefs False InvalidCACertificateRef: tls.frontend caCertificateRefs: ConfigMap apps/new {UNREAD}"
    ]
    world.read()
    world.go_on()
    assert not world.document.listeners, "there are none"


def test_no_client_is_admitted_by_a_former_ca_while_something_else_cannot_be_read() -> None:
    world = World(gateway(https("old"), frontend=clients_of("old")), pair("old"), bundle("old"))
    ref = {"group": "", "kind": "Service", "name": "web"}
    validation = {"caCertificateRefs": [ref], "mode": "AllowValidOnly"}

    world.edit(gateway(https("new"), frontend={"default": {"validation": validation}}))

    assert not world.document.listeners


def test_no_client_is_admitted_unverified_while_the_ca_cannot_be_read() -> None:
    world = World(gateway(https("old")), pair("old"))

    world.edit(gateway(https("old"), frontend=clients_of("new")))

    assert not world.document.listeners


def test_backends_get_the_former_client_certificate_until_the_newly_named_one_is_read() -> None:
    plain = {"name": "http", "port": 80, "protocol": "HTTP"}
    system = policy(wellKnownCACertificates="System")
    world = World(gateway(plain, backend={"clientCertificateRef": {"name": "old"}}), pair("old"), system)
    was = world.backend()
    assert was.tls
    assert was.tls.client_certificate

    world.edit(gateway(plain, backend={"clientCertificateRef": {"name": "new"}}))

    assert world.backend() == was
    said = f"tls.backend.clientCertificateRef: Secret apps/new {UNREAD}"
    assert world.findings() == [f"ResolvedRefs False InvalidClientCertificateRef: {said}"]


def test_backends_are_verified_as_before_until_the_newly_named_ca_is_read() -> None:
    plain = {"name": "http", "port": 80, "protocol": "HTTP"}
    world = World(gateway(plain), policy(**authorities("old")), bundle("old"))
    was = world.backend()
    assert was.tls
    assert was.tls.ca

    world.edit(policy(**authorities("new")))

    assert world.backend() == was
    assert world.findings(POLICY) == [
        f"ResolvedRefs False InvalidCACertificateRef: caCertificateRefs[0]: ConfigMap apps/new {UNREAD}"
    ]
    world.read()
    world.go_on()
    assert not world.backend().tls
    assert not world.backend().addresses


def test_a_backend_that_is_to_be_verified_gets_nothing_while_the_ca_cannot_be_read() -> None:
    plain = {"name": "http", "port": 80, "protocol": "HTTP"}
    world = World(gateway(plain))
    assert world.backend().addresses

    world.edit(policy(**authorities("new")))

    assert not world.backend().addresses


WEB_LISTENER = {"name": "web", "port": 80, "protocol": "HTTP"}


def class_naming(config: str) -> Plain:
    ref = {"group": "tunnelgw.dev", "kind": "GatewayClassConfig", "name": config}
    return {
        "kind": "GatewayClass",
        "metadata": {"name": "ours"},
        "spec": {"controllerName": DEFAULT_CONTROLLER, "parametersRef": ref},
    }


def class_config(name: str, tunnel: str) -> Plain:
    direct = {"addresses": ["192.0.2.1"]}
    return {"kind": "GatewayClassConfig", "metadata": {"name": name}, "spec": {"tunnelID": tunnel, "direct": direct}}


def accepted(world: World) -> str:
    verdict = world.translation.verdict(ObjectId(Kind.GATEWAY_CLASS, Key("", "ours")))
    assert isinstance(verdict, ClassVerdict)
    return next(each for each in in_words(verdict.findings) if each.startswith("Accepted"))


FIRST, NEXT = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
NO_CONFIG = "Accepted False InvalidParameters: GatewayClassConfig next "
KEPT_CONFIG = f"{NO_CONFIG}could not be read yet; until then what was named before is used"


@pytest.mark.parametrize("exists", [False, True])
def test_a_class_keeps_its_configuration_until_the_one_that_it_names_now_can_be_read(exists: bool) -> None:
    world = World(class_config("ours", FIRST), gateway(WEB_LISTENER))
    served = len(world.document.listeners)

    world.lose(Kind.GATEWAY_CLASS_CONFIG)
    world.edit(class_naming("next"))

    assert accepted(world) == KEPT_CONFIG
    assert (world.tunnels(), len(world.document.listeners)) == ({FIRST}, served)
    assert len(world.document.routes) == 1

    if exists:
        world.edit(class_config("next", NEXT))
    world.lose(Kind.GATEWAY_CLASS_CONFIG, is_lost=False)

    assert accepted(world).startswith("Accepted True" if exists else f"{NO_CONFIG}does not exist")
    assert (world.tunnels(), len(world.document.routes)) == (({NEXT}, 1) if exists else (set(), 0))


def test_a_class_that_names_a_missing_configuration_while_all_can_be_read_has_none() -> None:
    world = World(class_config("ours", FIRST), gateway(WEB_LISTENER))

    world.edit(class_naming("next"))

    assert accepted(world) == f"{NO_CONFIG}does not exist"
    assert (world.tunnels(), world.document.routes) == (set(), ())


def test_a_class_that_was_invalid_before_has_nothing_while_its_configuration_cannot_be_read() -> None:
    world = World(class_config("ours", "no id of a tunnel"), gateway(WEB_LISTENER))

    world.lose(Kind.GATEWAY_CLASS_CONFIG)
    world.edit(class_naming("next"))

    assert accepted(world) == f"{NO_CONFIG}could not be read yet"
    assert world.document.routes == ()


OWN = str(GATEWAY.key)
"""Id of the Gateway's own data plane."""


def gateway_config(name: str, tunnel: str) -> Plain:
    direct = {"addresses": ["192.0.2.2"]}
    return {"kind": "GatewayConfig", "metadata": {"name": name}, "spec": {"tunnelID": tunnel, "direct": direct}}


def own_parameters(found: str) -> str:
    return f"False InvalidParameters: infrastructure.parametersRef: GatewayConfig apps/next {found}"


@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize("before", ["first", ""], ids=["own", "shared"])
def test_a_gateway_keeps_its_configuration_until_the_one_that_it_names_now_can_be_read(
    before: str, exists: bool
) -> None:
    world = World(class_config("ours", FIRST), gateway_config("first", FIRST), gateway(WEB_LISTENER, config=before))
    plane = OWN if before else SHARED
    assert len(world.routes(plane)) == 1

    world.lose(Kind.GATEWAY_CONFIG)
    world.edit(gateway(WEB_LISTENER, config="next"))

    assert world.findings() == [f"ResolvedRefs {own_parameters(UNREAD)}"]
    assert (world.tunnels(), len(world.routes(plane))) == ({FIRST}, 1)

    if exists:
        world.edit(gateway_config("next", NEXT))
    world.lose(Kind.GATEWAY_CONFIG, is_lost=False)

    assert world.findings()[:1] == ([] if exists else [f"Accepted {own_parameters('does not exist')}"])
    assert (world.tunnels() - {FIRST}, len(world.routes(OWN))) == (({NEXT}, 1) if exists else (set(), 0))


def test_a_gateway_that_names_a_missing_configuration_while_all_can_be_read_has_none() -> None:
    world = World(gateway_config("first", FIRST), gateway(WEB_LISTENER, config="first"))

    world.edit(gateway(WEB_LISTENER, config="next"))

    assert world.findings()[0] == f"Accepted {own_parameters('does not exist')}"
    assert (world.tunnels(), len(world.routes(OWN))) == (set(), 0)


def test_a_gateway_that_was_invalid_before_has_nothing_while_its_configuration_cannot_be_read() -> None:
    world = World(gateway_config("first", "no id of a tunnel"), gateway(WEB_LISTENER, config="first"))

    world.lose(Kind.GATEWAY_CONFIG)
    world.edit(gateway(WEB_LISTENER, config="next"))

    assert world.findings()[0] == f"Accepted {own_parameters('could not be read yet')}"
    assert len(world.routes(OWN)) == 0


def test_a_gateway_has_the_configuration_that_it_names_although_its_new_certificate_cannot_be_read() -> None:
    world = World(
        gateway_config("first", FIRST), gateway_config("next", NEXT), gateway(https("old"), config="first"), pair("old")
    )

    world.edit(gateway(https("new"), config="next"))

    assert (world.tunnels(), world.certificates(OWN)) == ({NEXT}, ["old"])
    world.lose(Kind.GATEWAY_CONFIG)
    world.edit(gateway(https("new"), config="last"))
    assert (world.tunnels(), world.certificates(OWN)) == ({NEXT}, ["old"])
    world.read(pair("new"))
    world.go_on()
    assert (world.tunnels(), world.certificates(OWN)) == ({NEXT}, ["new"])
