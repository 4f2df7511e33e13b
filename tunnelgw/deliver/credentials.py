"""What the Secrets that configurations name hold: tokens, and in the connector's token the account. Pure."""

import base64
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from daemonkit.secret import Secret
from tunnelgw.model import core
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.model.own import (
    API_TOKEN_FIELD,
    AUTH_TOKEN_FIELD,
    TUNNEL_ID,
    TUNNEL_TOKEN_FIELD,
    GatewayClassConfigSpec,
    GatewayConfigSpec,
)
from tunnelgw.model.refs import SecretKeyRef
from tunnelgw.model.snapshot import Objects
from tunnelgw.translate.verdicts import NOT_READ, OUTSIDE

_TUNNEL_ID = re.compile(TUNNEL_ID)


class Credentials(msgspec.Struct, frozen=True):
    """What a reference to a secret leads to: the secret, or the reason why there is none."""

    secret: Secret | None
    problem: str = ""


def token_at(objects: Objects, ref: SecretKeyRef, namespace: str, field: str) -> Credentials:
    """A token that can be sent as `Authorization: Bearer`.

    `namespace` and `field` (the Secret's key) count where the reference names none.
    """
    place = _Place.of(ref, namespace, field)
    found = _secret(objects, place)
    if found.secret is None or found.secret.fits_header():
        return found
    return Credentials(None, f"{place}: not a token, want one line of printable ASCII")


class _Place(NamedTuple):
    """Where a reference leads: a Secret, and the key in it."""

    secret: Key
    field: str

    @classmethod
    def of(cls, ref: SecretKeyRef, namespace: str, field: str) -> "_Place":
        return cls(Key(ref.namespace or namespace, ref.name), ref.key or field)

    def __str__(self) -> str:
        return f"Secret {self.secret} key {self.field}"


def _secret(objects: Objects, place: _Place) -> Credentials:
    found = objects.get(Kind.SECRET, place.secret)
    if not isinstance(found, core.Secret):
        return Credentials(None, f"secret not found: {place.secret} (key {place.field})")
    if found.is_outside:
        return Credentials(None, f"{place}: the Secret {OUTSIDE}")
    if found.data is None:
        return Credentials(None, f"{place}: the Secret {NOT_READ}")
    try:
        text = base64.b64decode(found.data.get(place.field, ""), validate=True).decode().strip()
    except ValueError:
        return Credentials(None, f"{place}: not text in base64")
    if not text:
        return Credentials(None, f"{place}: the Secret exists but has no usable value at the expected key")
    return Credentials(Secret(text))


def account_for(objects: Objects, config: GatewayClassConfigSpec, namespace: str) -> tuple[str, str]:
    """The tunnel's account, configured or named by the connector's token; without one, what to do if the provider
    cannot tell it."""
    if config.account_id:
        return config.account_id, ""
    if not isinstance(config, GatewayConfigSpec):
        return "", "set accountID in the GatewayClassConfig"
    remedy = "set accountID in the GatewayConfig"
    ref = config.tunnel_token_secret_ref
    if ref is None:
        return "", remedy
    place = _Place.of(ref, namespace, TUNNEL_TOKEN_FIELD)
    token = _secret(objects, place)
    if token.secret is None:
        return "", f"{remedy}, or correct tunnelTokenSecretRef: {token.problem}"
    if account := _named_in(token.secret, "a"):
        return account, ""
    return "", f"{remedy}, or correct tunnelTokenSecretRef: {place}: not a tunnel's token"


class Lack(msgspec.Struct, frozen=True):
    """A token that a configuration names and that is not there."""

    problem: str
    is_without_secret: bool
    """The whole Secret is missing, not just its key."""


def lacks(objects: Objects, config: GatewayClassConfigSpec, namespace: str) -> Iterator[Lack]:
    """What keeps us from the provider, or from the config API of the proxies, that a configuration names."""
    named = [(config.provider_credentials_secret_ref if config.tunnel_id else None, API_TOKEN_FIELD)]
    if isinstance(config, GatewayConfigSpec):
        named.append((config.auth_secret_ref if config.proxy_endpoints else None, AUTH_TOKEN_FIELD))
    for ref, field in named:
        if ref is None or not (problem := token_at(objects, ref, namespace, field).problem):
            continue
        place = _Place.of(ref, namespace, field)
        yield Lack(problem, is_without_secret=objects.get(Kind.SECRET, place.secret) is None)


def other_tunnel(objects: Objects, config: GatewayConfigSpec, namespace: str) -> str:
    """What is wrong if the connector's token is that of another tunnel than `tunnelID`, which its proxy then opens
    instead. Empty: it is not, as far as we can read it."""
    ref = config.tunnel_token_secret_ref
    if ref is None or not config.tunnel_id:
        return ""
    place = _Place.of(ref, namespace, TUNNEL_TOKEN_FIELD)
    token = _secret(objects, place)
    opened = _named_in(token.secret, "t").lower() if token.secret is not None else ""
    if opened == config.tunnel_id or not _TUNNEL_ID.fullmatch(opened):
        return ""
    return (
        f"{place}: the token of tunnel {opened}, want that of tunnel {config.tunnel_id}, which gets the hostnames: "
        "correct the Secret, tunnelTokenSecretRef or tunnelID"
    )


def _named_in(token: Secret, field: str) -> str:
    """What the connector's token names as its account (`a`) or tunnel (`t`); empty: it names none."""
    try:
        content: Mapping[str, object] = msgspec.json.decode(base64.b64decode(token.reveal()), type=dict[str, object])
    except (ValueError, msgspec.DecodeError, RecursionError):  # the Secret may contain anything
        return ""
    named = content.get(field)
    return named if isinstance(named, str) else ""
