"""Configurations that the provider pushes to its connectors, and the answers that it waits for.

We route by the document of our own controller. The provider's configuration is only acknowledged, since the edge would
retry an unanswered push for ever, and its version is shown. Versions apply to the whole proxy: the edge pushes over
each connection, and a version that is not newer changes nothing. Pure.
"""

from typing import Any, Final

import msgspec

NO_VERSION: Final = -1
"""Before any push; version 0 is a real one."""
MAX_UPDATE_BYTES: Final = 16 * 1024 * 1024
LOCAL_CONFIGURATION: Final = b'{"ingress":[],"warp-routing":{}}'
"""Sent for a tunnel that is not remotely managed; empty, as our routes are none of the provider's business."""


class MalformedUpdate(ValueError):
    """The push is not a JSON document of the expected shape; it is answered as a failure of the connector."""


class Update(msgspec.Struct, frozen=True):
    version: int
    config: bytes
    """JSON."""


class _Envelope(msgspec.Struct):
    version: int = 0
    config: msgspec.Raw = msgspec.Raw(b"null")


class _Answer(msgspec.Struct, rename="camel"):
    last_applied_version: int
    err: str | None


_decoder: Final = msgspec.json.Decoder(_Envelope)


def decode_update(body: bytes) -> Update:
    """Raises MalformedUpdate."""
    try:
        envelope = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedUpdate(f"a pushed configuration that cannot be read: {str(error)[:256]}") from error
    if not -(1 << 31) <= envelope.version < 1 << 31:
        raise MalformedUpdate(f"a pushed configuration with version {envelope.version}, want a 32-bit number")
    return Update(envelope.version, bytes(envelope.config))


def flaw_of(update: Update) -> str | None:
    """Why the update is unusable; None if it is not."""
    try:
        config: Any = msgspec.json.decode(update.config)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        # Only its structure has been checked so far, not strings and numbers.
        return f"the configuration cannot be read: {str(error)[:256]}"
    # null: the tunnel has not been configured yet, which the edge pushes as version 0.
    return None if config is None or isinstance(config, dict) else "the configuration is not a JSON object"


def encode_answer(applied_version: int, flaw: str | None) -> bytes:
    """The body of the response: the version in force; a `flaw` makes it a refusal."""
    return msgspec.json.encode(_Answer(applied_version, flaw))
