"""The auth Secret of the shared proxies, with the token of their config API: read once at start, created if absent, and
never changed."""

import base64
import binascii
from http import HTTPStatus

import msgspec

from daemonkit.secret import Secret as SecretText
from tunnelgw.model import core
from tunnelgw.model.kinds import RESOURCES, Kind
from tunnelgw.model.meta import Key
from tunnelgw.model.own import AUTH_TOKEN_FIELD
from tunnelgw.sources.kubernetes.failures import Refused, decoded
from tunnelgw.sources.kubernetes.server import ApiServer

_REQUEST_S = 5.0
"""Nothing is translated before the answer is here, so a slow request is abandoned and repeated."""
_PATH = RESOURCES[Kind.SECRET].path


class UnusableSecret(Exception):
    """The Secret exists, but has no usable token."""


def read_token(server: ApiServer, key: Key) -> SecretText | None:
    """The token, without surrounding white space; None: there is no such Secret.

    Raises UnusableSecret, and ApiServerError.
    """
    try:
        body = server.request("GET", f"{_PATH}/namespaces/{key.namespace}/secrets/{key.name}", timeout_s=_REQUEST_S)
    except Refused as refusal:
        if refusal.status_code == HTTPStatus.NOT_FOUND:
            return None
        raise
    return _token_in(decoded(body, core.Secret))


def _token_in(secret: core.Secret) -> SecretText:
    """Raises UnusableSecret."""
    try:
        text = base64.b64decode((secret.data or {}).get(AUTH_TOKEN_FIELD, ""), validate=True).decode().strip()
    except (binascii.Error, UnicodeDecodeError):
        text = ""
    token = SecretText(text)
    if not token or not token.fits_header():
        where = f"{secret.key} key {AUTH_TOKEN_FIELD}"
        raise UnusableSecret(f"{where}: the Secret exists but has no usable value at the expected key")
    return token


def create(server: ApiServer, key: Key, token: SecretText) -> bool:
    """Returns False if somebody else was faster: then their token is valid. Raises ApiServerError."""
    document = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": key.name, "namespace": key.namespace},
        "type": "Opaque",
        "data": {AUTH_TOKEN_FIELD: base64.b64encode(token.reveal().encode()).decode()},
    }
    path = f"{_PATH}/namespaces/{key.namespace}/secrets"
    try:
        server.request("POST", path, body=msgspec.json.encode(document), timeout_s=_REQUEST_S)
    except Refused as refusal:
        if refusal.reason == "AlreadyExists":
            return False
        raise
    return True
