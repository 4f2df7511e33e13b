"""Objects for the tests of sources, as their authors write them."""

from typing import Any

import msgspec

from tunnelgw.model.kinds import RESOURCES, Kind
from tunnelgw.model.meta import Object


def make(kind: Kind, name: str, spec: Any = None, *, namespace: str = "default", **fields: Any) -> Object:
    """`fields`: others beside the spec; those of `metadata` are merged."""
    metadata = {"name": name, "namespace": namespace, **fields.pop("metadata", {})}
    document = {"metadata": metadata, **fields}
    if spec is not None:
        document["spec"] = spec
    # By way of bytes, as objects really come: the status stays undecoded.
    return msgspec.json.decode(msgspec.json.encode(document), type=RESOURCES[kind].struct)


def gateway(name: str, secret: str = "", **fields: Any) -> Object:
    listener: dict[str, Any] = {"name": "https", "port": 443, "protocol": "HTTPS"}
    if secret:
        listener["tls"] = {"certificateRefs": [{"name": secret}]}
    return make(Kind.GATEWAY, name, {"gatewayClassName": "tunnel", "listeners": [listener]}, **fields)


def route(name: str, parent: str = "gw", path: str = "/", **fields: Any) -> Object:
    rules = [{"matches": [{"path": {"value": path}}], "backendRefs": [{"name": "web", "port": 80}]}]
    return make(Kind.HTTP_ROUTE, name, {"parentRefs": [{"name": parent}], "rules": rules}, **fields)


def secret(name: str, **data: str) -> Object:
    return make(Kind.SECRET, name, type="Opaque", data=data or None)
