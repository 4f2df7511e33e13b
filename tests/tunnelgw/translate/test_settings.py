"""Settings of proxies come from the parameters of classes and Gateways, and say all that a document can."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from proxy import document
from tests.tunnelgw.translate.world import object_of, translation_of
from tunnelgw.model.conditions import ConditionType, Finding, Reason, Status
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.model.own import ProxyForwarding, ProxyLimits, ProxySettings
from tunnelgw.options import DEFAULT_CONTROLLER
from tunnelgw.sources.tables import Tables
from tunnelgw.translate.settings import fit
from tunnelgw.translate.verdicts import ClassVerdict, GatewayVerdict, ObjectId

CHART = Path(__file__).parents[3] / "helm" / "tunnelgw"
OWN_ELSEWHERE = {"version", "listeners"}
"""Settings of a document that are not those of a class: made of Gateways, or by counting."""

Plain = dict[str, Any]


def gateway_class(name: str, config: Plain, created_at: str = "2026-01-01T00:00:00Z") -> list[Plain]:
    parameters = {"group": "tunnelgw.dev", "kind": "GatewayClassConfig", "name": name}
    return [
        {
            "kind": "GatewayClass",
            "metadata": {"name": name, "creationTimestamp": created_at},
            "spec": {"controllerName": DEFAULT_CONTROLLER, "parametersRef": parameters},
        },
        {
            "kind": "GatewayClassConfig",
            "metadata": {"name": name},
            "spec": {"direct": {"addresses": ["192.0.2.1"]}, **config},
        },
    ]


def gateway(name: str, class_name: str, own_config: str = "") -> Plain:
    spec: Plain = {"gatewayClassName": class_name, "listeners": [{"name": "web", "port": 80, "protocol": "HTTP"}]}
    if own_config:
        parameters = {"group": "tunnelgw.dev", "kind": "GatewayConfig", "name": own_config}
        spec["infrastructure"] = {"parametersRef": parameters}
    return {"kind": "Gateway", "metadata": {"name": name}, "spec": spec}


class Translated:
    def __init__(self, *objects: Plain) -> None:
        self._tables = Tables()
        for plain in objects:
            self._tables.put(*object_of(plain))
        self.translation = translation_of(self._tables.take()[0])

    def put(self, *objects: Plain) -> frozenset[str]:
        """The data planes whose document has changed then."""
        for plain in objects:
            self._tables.put(*object_of(plain))
        snapshot, changes = self._tables.take()
        return self.translation.update(snapshot, changes.changed).data_planes

    def settings(self, data_plane: str = "shared") -> document.Settings:
        """Without listeners, as the proxy reads them."""
        decoded = document.decode(self.translation.documents[data_plane].encode(1))
        return msgspec.structs.replace(document.settings_of(decoded), version=document.UNSET, listeners=())

    def is_accepted(self, class_name: str) -> bool:
        (accepted,) = self._findings(Kind.GATEWAY_CLASS, Key("", class_name), ConditionType.ACCEPTED)
        return accepted.status is Status.TRUE

    def left_out(self, kind: Kind, key: Key) -> tuple[Reason, str] | None:
        found = self._findings(kind, key, ConditionType.SETTINGS_LEFT_OUT)
        assert all(finding.status is Status.TRUE for finding in found)
        return (found[0].reason, found[0].message) if found else None

    def left_out_of(self, class_name: str) -> tuple[Reason, str] | None:
        return self.left_out(Kind.GATEWAY_CLASS, Key("", class_name))

    def _findings(self, kind: Kind, key: Key, type_: ConditionType) -> list[Finding]:
        verdict = self.translation.verdict(ObjectId(kind, key))
        assert isinstance(verdict, ClassVerdict | GatewayVerdict)
        return [finding for finding in verdict.findings if finding.type is type_]


def test_without_settings_a_proxy_keeps_its_own() -> None:
    assert Translated(*gateway_class("c", {}), gateway("gw", "c")).settings() == document.Settings()


def test_the_shared_proxies_have_the_settings_of_the_class() -> None:
    proxy = {
        "mergeSlashes": False,
        "forwarding": {"trustedProxies": ["10.0.0.0/8"], "proxyProtocol": ["192.0.2.7"], "requestIdHeader": "X-Id"},
        "limits": {"requestTimeout": "60s", "maxHeaderBytes": 32768},
    }
    translated = Translated(*gateway_class("c", {"proxy": proxy}), gateway("gw", "c"))

    assert translated.settings() == document.Settings(
        merge_slashes=False,
        forwarding=document.Forwarding(
            trusted_proxies=("10.0.0.0/8",), proxy_protocol=("192.0.2.7",), request_id_header="X-Id"
        ),
        limits=document.Limits(request_timeout="60s", max_header_bytes=32768),
    )
    assert len(document.decode(translated.translation.documents["shared"].encode(1)).listeners) == 1


def test_changed_settings_change_the_document_and_equal_ones_do_not() -> None:
    translated = Translated(*gateway_class("c", {}), gateway("gw", "c"))
    before = translated.translation.documents["shared"].digest()

    assert translated.put(gateway_class("c", {"proxy": {"forwarding": {"via": True}}})[1]) == {"shared"}
    after = translated.translation.documents["shared"].digest()
    assert after != before
    assert translated.settings().forwarding.via
    assert translated.put(gateway_class("c", {"proxy": {"forwarding": {"via": True}, "limits": {}}})[1]) == frozenset()
    assert translated.put(gateway_class("c", {})[1]) == {"shared"}
    assert translated.translation.documents["shared"].digest() == before


@pytest.mark.parametrize(
    "proxy", [{}, {"limits": {}, "forwarding": {}}, {"limits": {"maxUriBytes": 16384}}, {"limits": {"maxUriBytes": 1}}]
)
def test_settings_that_change_nothing_leave_the_bytes_of_the_document_alone(proxy: Plain) -> None:
    without = Translated(*gateway_class("c", {}), gateway("gw", "c")).translation.documents["shared"]
    content = Translated(*gateway_class("c", {"proxy": proxy}), gateway("gw", "c")).translation.documents["shared"]

    assert (content.digest(), content.encode(1)) == (without.digest(), without.encode(1))


def test_of_several_classes_the_oldest_with_settings_decides_and_the_others_report_that() -> None:
    plain = gateway_class("a-plain", {}, "2025-01-01T00:00:00Z")
    older = gateway_class("z-older", {"proxy": {"mergeSlashes": False}}, "2025-02-01T00:00:00Z")
    younger = gateway_class("b-younger", {"proxy": {"forwarding": {"via": True}}}, "2025-03-01T00:00:00Z")
    alike = gateway_class("c-alike", {"proxy": {"mergeSlashes": False}}, "2025-04-01T00:00:00Z")
    translated = Translated(*plain, *older, *younger, *alike, gateway("gw", "b-younger"))

    assert translated.settings() == document.Settings(merge_slashes=False)
    assert [translated.left_out_of(name) for name in ("a-plain", "z-older", "c-alike")] == [None] * 3
    message = "`proxy` is not used: the shared proxies have that of GatewayClass z-older, which is older"
    assert translated.left_out_of("b-younger") == (Reason.CONFLICTED, message)
    assert translated.is_accepted("b-younger")

    translated.put(gateway_class("z-older", {}, "2025-02-01T00:00:00Z")[1])
    assert translated.settings().forwarding.via
    assert translated.left_out_of("b-younger") is None
    assert "GatewayClass b-younger" in str(translated.left_out_of("c-alike"))


def test_a_class_whose_parameters_cannot_be_used_decides_nothing() -> None:
    broken = gateway_class("a", {"tunnelID": "odd", "proxy": {"mergeSlashes": True}}, "2025-01-01T00:00:00Z")
    sound = gateway_class("b", {"proxy": {"mergeSlashes": False}}, "2025-02-01T00:00:00Z")
    translated = Translated(*broken, *sound, gateway("gw", "b"))

    assert not translated.is_accepted("a")
    assert translated.left_out_of("a") is None
    assert translated.settings() == document.Settings(merge_slashes=False)


SLIPS: Plain = {
    "mergeSlashes": False,
    "forwarding": {
        "trustedProxies": ["10.0.0.1/8", "192.0.2.0/24", "::/200"],
        "proxyProtocol": ["192.0.2.7"],
        "requestIdHeader": "Host",
    },
    "limits": {"idleTimeout": "soon", "maxUriBytes": 1, "requestTimeout": "60s"},
}
WITHOUT_SLIPS = document.Settings(
    merge_slashes=False,
    forwarding=document.Forwarding(trusted_proxies=("192.0.2.0/24",), proxy_protocol=("192.0.2.7",)),
    limits=document.Limits(request_timeout="60s"),
)
SLIPPED = (
    "limits.maxUriBytes: want a whole number >= 256, seen 1",
    "limits.idleTimeout: ",
    "forwarding.trustedProxies[0]: 10.0.0.1/8 has host bits set",
    "forwarding.trustedProxies[2]: ",
    "forwarding.requestIdHeader: `Host` has a meaning of its own",
)


def test_settings_that_a_proxy_would_refuse_are_left_out_and_reported_and_others_apply() -> None:
    translated = Translated(*gateway_class("c", {"proxy": SLIPS}), gateway("gw", "c"))

    assert translated.settings() == WITHOUT_SLIPS
    assert translated.is_accepted("c")
    told = translated.left_out_of("c")
    assert told
    assert told[0] is Reason.INVALID_PARAMETERS
    assert all(f"proxy.{slip}" in told[1] for slip in SLIPPED), told


def test_left_out_settings_of_a_gateway_s_own_proxy_are_reported_on_the_gateway() -> None:
    config = {"direct": {"addresses": ["192.0.2.2"]}, "proxy": SLIPS}
    own = {"kind": "GatewayConfig", "metadata": {"name": "own"}, "spec": config}
    translated = Translated(*gateway_class("c", {}), gateway("gw", "c", "own"), own)

    assert translated.settings("apps/gw") == WITHOUT_SLIPS
    told = translated.left_out(Kind.GATEWAY, Key("apps", "gw"))
    assert told
    assert all(f"proxy.{slip}" in told[1] for slip in SLIPPED), told
    assert translated.left_out_of("c") is None


@given(st.lists(st.sampled_from(["10.0.0.1/8", "10.0.0.0/8", "x", "192.0.2.1"]), max_size=60))
def test_of_many_networks_only_the_invalid_ones_are_left_out(networks: list[str]) -> None:
    fitted = fit(ProxySettings(forwarding=ProxyForwarding(trusted_proxies=tuple(networks))))

    sound = [network for network in networks if network in ("10.0.0.0/8", "192.0.2.1")]
    assert fitted.settings.forwarding.trusted_proxies == tuple(sound)
    assert len(fitted.left_out) == len(networks) - len(sound)


def test_a_gateway_with_a_proxy_of_its_own_has_its_own_settings_alone() -> None:
    config = {"direct": {"addresses": ["192.0.2.2"]}, "proxy": {"forwarding": {"forwarded": True}}}
    translated = Translated(
        *gateway_class("c", {"proxy": {"mergeSlashes": False}}),
        gateway("shared", "c"),
        gateway("gw", "c", "own"),
        {"kind": "GatewayConfig", "metadata": {"name": "own"}, "spec": config},
    )

    assert translated.settings() == document.Settings(merge_slashes=False)
    assert translated.settings("apps/gw") == document.Settings(forwarding=document.Forwarding(forwarded=True))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (ProxySettings, document.Settings),
        (ProxyForwarding, document.Forwarding),
        (ProxyLimits, document.Limits),
    ],
)
def test_all_settings_of_a_document_can_be_configured(ours: type[msgspec.Struct], theirs: type[msgspec.Struct]) -> None:
    assert set(ours.__struct_encode_fields__) == set(theirs.__struct_encode_fields__) - OWN_ELSEWHERE


@pytest.mark.parametrize("crd", ["gatewayclassconfigs", "gatewayconfigs"])
def test_the_crds_have_the_settings_of_a_document_with_its_bounds(crd: str) -> None:
    (version,) = yaml.safe_load((CHART / "crds" / f"{crd}.yaml").read_text())["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]

    assert _forms(spec["properties"]["proxy"]["properties"], {}) == _of_documents()


def test_the_values_schema_of_the_chart_has_the_settings_too() -> None:
    schema = msgspec.json.decode((CHART / "values.schema.json").read_bytes())

    assert _forms(schema["definitions"]["proxySettings"]["properties"], {}) == _of_documents()


def _of_documents() -> Plain:
    schema = msgspec.json.schema(document.Settings)["$defs"]
    return _forms(schema["Settings"]["properties"], schema)


def _forms(properties: Plain, named: Plain) -> Plain:
    """Type and bounds of each field, by its name."""
    found: Plain = {}
    for name, field in properties.items():
        if name in OWN_ELSEWHERE:
            continue
        reference = field.get("$ref") or next((each["$ref"] for each in field.get("allOf", ())), "")
        schema = named[reference.rpartition("/")[2]] if reference else field
        if "properties" in schema:
            found[name] = _forms(schema["properties"], named)
        else:
            found[name] = {word: schema.get(word) for word in ("type", "minimum", "maximum")}
    return found
