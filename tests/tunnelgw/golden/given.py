"""The objects of a golden case about Gateways, with what nearly every case needs and none should have to spell out.

config     spec of the GatewayClassConfig of class `ours`; a tunnel and the address 192.0.2.1 unless given
services   Services of namespace apps with port 80, each with its addresses
tls        Secrets of type kubernetes.io/tls with a certificate for these names, by name or namespace/name
ca         ConfigMaps with an authority, by name or namespace/name
objects    all other objects, in namespace apps unless they say otherwise; Gateways are of class `ours`
"""

from typing import Any

from tests.tunnelgw.translate.pki import authority_pem, secret_data
from tests.tunnelgw.translate.world import object_of, service
from tunnelgw.model.snapshot import Snapshot
from tunnelgw.options import DEFAULT_CONTROLLER
from tunnelgw.sources.references import WITH_DATA
from tunnelgw.sources.store import Store

FIELDS = frozenset({"config", "services", "tls", "ca", "objects"})
TUNNEL = "00000000-0000-4000-8000-000000000001"


def snapshot_of(case: dict[str, Any]) -> Snapshot:
    config = case.get("config", {"tunnelID": TUNNEL, "direct": {"addresses": ["192.0.2.1"]}})
    parameters = {"group": "tunnelgw.dev", "kind": "GatewayClassConfig", "name": "ours"}
    plain: list[dict[str, Any]] = [
        {
            "kind": "GatewayClass",
            "metadata": {"name": "ours"},
            "spec": {"controllerName": DEFAULT_CONTROLLER, "parametersRef": parameters},
        },
        {"kind": "GatewayClassConfig", "metadata": {"name": "ours"}, "spec": config},
    ]
    for name, addresses in case.get("services", {}).items():
        plain += service(name, addresses)
    for name, names in case.get("tls", {}).items():
        plain.append(
            {"kind": "Secret", "metadata": _metadata(name), "type": "kubernetes.io/tls", "data": secret_data(*names)}
        )
    for name in case.get("ca", []):
        plain.append({"kind": "ConfigMap", "metadata": _metadata(name), "data": {"ca.crt": authority_pem()}})
    for item in case.get("objects", []):
        if item["kind"] == "Gateway":
            item["spec"].setdefault("gatewayClassName", "ours")
        plain.append(item)
    store = Store(WITH_DATA)
    # The store keeps data only of what is named already, and takes for missing what a list will not show.
    for kind, item in sorted(map(object_of, plain), key=lambda each: each[0] in WITH_DATA):
        store.upsert(kind, item)
    return store.take().snapshot


def _metadata(name: str) -> dict[str, str]:
    namespace, _, name = name.rpartition("/")
    return {"name": name, "namespace": namespace or "apps"}
