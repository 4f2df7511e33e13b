"""The tunnel token: standard base64 of a JSON object with account tag `a`, tunnel id `t`, secret `s`, endpoint `e`.

It is read as the provider's own connector reads it, oddities included: CR and LF in the base64 text are ignored, keys
are case-insensitive, unknown keys are skipped, and null counts as absent. One rule is stricter: a token without
account, tunnel or secret can never register, so it is refused here. `MalformedToken` says which part is wrong but never
shows any of it, not even in its cause. Callers strip surrounding white space. Pure.
"""

import base64
import re
import uuid
from typing import Final, NoReturn

import msgspec

from daemonkit.secret import Secret

_BASE64: Final = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_ALPHABET: Final = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_URL_SAFE: Final = re.compile(r"[A-Za-z0-9_-]*={0,2}")
_ODDLY_PADDED: Final = re.compile(r"[A-Za-z0-9+/_=-]*")
_WHITE_SPACE: Final = re.compile(r"\s")
_QUOTES: Final = "\"'"
_DASHED: Final = "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
_UUID: Final = re.compile(rf"{_DASHED}|[0-9A-Fa-f]{{32}}|\{{{_DASHED}\}}|[Uu][Rr][Nn]:[Uu][Uu][Ii][Dd]:{_DASHED}")
_ENDPOINT: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,40}[A-Za-z0-9])?")
"""Checked because it becomes part of a host name."""
_NAMES: Final = {"a": "account tag", "t": "tunnel id", "s": "tunnel secret", "e": "endpoint"}
_REMEDY: Final = "copy the whole token again from the tunnel's page"


class MalformedToken(ValueError):
    """The text is not a tunnel token; retrying is useless."""


class TunnelToken(msgspec.Struct, frozen=True):
    account_tag: str
    tunnel_id: uuid.UUID
    secret: Secret
    """In base64; see `secret_bytes`."""
    endpoint: str = ""
    """The region whose edge is to be used; empty: the global edge."""

    @classmethod
    def decode(cls, text: str) -> "TunnelToken":
        """Raises MalformedToken."""
        parts = _parts_of(_decode_base64("tunnel token", text))
        return cls(
            parts.get("a") or _missing("a"),
            _tunnel_id(parts.get("t") or _missing("t")),
            _tunnel_secret(parts.get("s") or _missing("s")),
            _endpoint(parts.get("e") or ""),
        )

    @classmethod
    def of(cls, account_tag: str, tunnel_id: uuid.UUID, secret: bytes) -> "TunnelToken":
        """Make a token from the parameters of a registration."""
        return cls(account_tag, tunnel_id, Secret(base64.b64encode(secret).decode()))

    @property
    def secret_bytes(self) -> bytes:
        """The decoded secret, for the registration only."""
        return base64.b64decode(self.secret.reveal())


def _decode_base64(what: str, text: str) -> bytes:
    text = text.replace("\r", "").replace("\n", "")
    if not text:
        raise MalformedToken(f"the {what} is empty; {_REMEDY}")
    if _BASE64.fullmatch(text):
        return base64.b64decode(text)
    seen = "characters that base64 does not use"
    if _WHITE_SPACE.search(text.strip()):
        seen = "white space inside, as in the command that the tunnel's page shows, whose last word is the token"
    elif _WHITE_SPACE.search(text):
        seen = "white space around it"
    elif text[0] in _QUOTES or text[-1] in _QUOTES:
        seen = "quotes around it, which some programs keep"
    elif _ALPHABET.fullmatch(text):
        seen = "a length that is not a multiple of 4: its end or its padding is missing"
    elif _URL_SAFE.fullmatch(text):
        seen = "the URL-safe alphabet"
    elif _ODDLY_PADDED.fullmatch(text):
        seen = "`=` in the middle, as if a variable name came before it, or it was pasted twice"
    raise MalformedToken(f"the {what} is not base64: seen {seen}, want the standard alphabet with padding; {_REMEDY}")


def _parts_of(raw: bytes) -> dict[str, str]:
    """The known keys that are present and not null."""
    try:
        content = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # Without its cause, which quotes what could not be read.
        raise MalformedToken(f"the tunnel token is base64, but not of a JSON document; {_REMEDY}") from None
    if content is None:
        content = {}
    if not isinstance(content, dict):
        raise MalformedToken(f"the tunnel token is JSON, but not an object; {_REMEDY}")
    parts: dict[str, str] = {}
    for spelled, value in content.items():
        key = spelled.casefold()
        if key not in _NAMES or value is None:
            continue
        if not isinstance(value, str):
            raise MalformedToken(f"the {_NAMES[key]} in the tunnel token is not text; {_REMEDY}")
        parts[key] = value
    return parts


def _tunnel_id(text: str) -> uuid.UUID:
    if not _UUID.fullmatch(text):
        raise MalformedToken(f"the tunnel id in the tunnel token is not a UUID; {_REMEDY}")
    tunnel_id = uuid.UUID(text.lower())
    return tunnel_id if tunnel_id.int else _missing("t")


def _tunnel_secret(text: str) -> Secret:
    secret = _decode_base64("tunnel secret in the tunnel token", text)
    return Secret(base64.b64encode(secret).decode())


def _endpoint(text: str) -> str:
    if text and not _ENDPOINT.fullmatch(text):
        raise MalformedToken(f"the endpoint in the tunnel token is not the name of a region; {_REMEDY}")
    return text


def _missing(key: str) -> NoReturn:
    raise MalformedToken(f"the tunnel token has no {_NAMES[key]}; {_REMEDY}")
