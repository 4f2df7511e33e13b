"""The auth Secret of the shared proxies: read once at start, created if absent, and never changed."""

import base64
import binascii
from http import HTTPStatus

import msgspec

from daemonkit.secret import Secret as SecretText
from tunnelgw.model import core
from tunnelgw.model.kinds import RESOURCES, Kind
from tunnelgw.model.meta import Key
from tunnelgw.sources.kubernetes.failures import Refused, decoded
from tunnelgw.sources.kubernetes.server import ApiServer

_REQUEST_S = 5.0
"""Nothing is translated before the answer is here, so a slow request is abandoned and repeated."""
_PATH = RESOURCES[Kind.SECRET].path


class UnusableSecret(Exception):
    """The Secret exists, but has no usable value under the key."""


def read_value(server: ApiServer, key: Key, field: str) -> SecretText | None:
    """The value, without surrounding white space; None: there is no such Secret.

    Raises UnusableSecret, and ApiServerError.
    """
    try:
        body = server.request("GET", f"{_PATH}/namespaces/{key.namespace}/secrets/{key.name}", timeout_s=_REQUEST_S)
    except Refused as refusal:
        if refusal.status_code == HTTPStatus.NOT_FOUND:
            return None
        raise
    return value_of(decoded(body, core.Secret), field)


def value_of(secret: core.Secret, field: str) -> SecretText:
    """Raises UnusableSecret."""
    try:
        text = base64.b64decode((secret.data or {}).get(field, ""), validate=True).decode().strip()
    except (binascii.Error, UnicodeDecodeError):
        text = ""
    value = SecretText(text)
    if not value or not value.fits_header():
        raise UnusableSecret(f"{secret.key} key {field}: the Secret exists but has no usable value at the expected key")
    return value


def create(server: ApiServer, key: Key, field: str, value: SecretText) -> bool:
    """Returns False if somebody else was faster: then their value is valid. Raises ApiServerError."""
    document = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": key.name, "namespace": key.namespace},
        "type": "Opaque",
        "data": {field: base64.b64encode(value.reveal().encode()).decode()},
    }
    path = f"{_PATH}/namespaces/{key.namespace}/secrets"
    try:
        server.request("POST", path, body=msgspec.json.encode(document), timeout_s=_REQUEST_S)
    except Refused as refusal:
        if refusal.reason == "AlreadyExists":
            return False
        raise
    return True
