"""The base class of the document's parts, and the value types that several parts use.

Parts are frozen and strict: unknown fields are refused, and so is null, since leaving a field out already says "not
wanted". Fields are snake_case here and camelCase in JSON, as in Gateway API. An absent optional part is `UNSET`, which
is false in a boolean context. Parts form no reference cycles, so the garbage collector does not track them.
"""

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

Unset: TypeAlias = UnsetType

# In Python `$` alone also matches before a trailing newline; with `(?!\n)` Python and JSON Schema validators agree.
END = r"$(?!\n)"
DURATION = r"^([0-9]{1,5}(h|m|s|ms)){1,4}" + END
HOSTNAME = r"^(\*\.)?[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*" + END
FIELD_NAME = r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+" + END
TIMESTAMP = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z" + END

Duration = Annotated[str, msgspec.Meta(pattern=DURATION, description="Duration such as 500ms, 30s or 1m30s.")]
Timeout = Annotated[
    str, msgspec.Meta(pattern=DURATION, description="Duration such as 500ms, 30s or 1m30s; 0s turns the timeout off.")
]
Hostname = Annotated[
    str,
    msgspec.Meta(
        pattern=HOSTNAME,
        max_length=253,
        description="Host name in ASCII lower case, without port; `*.example.com` covers every name below it.",
    ),
]
PlainHostname = Annotated[
    str, msgspec.Meta(pattern=HOSTNAME.replace(r"(\*\.)?", ""), max_length=253, description="Host name, no wildcard.")
]
# RFC 1035, 2.3.4: 63 octets a label. Names that are only compared may be longer, since Gateway API lets them be.
ServerName = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^LABEL(\.LABEL)*".replace("LABEL", "[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?") + END,
        max_length=253,
        description="Host name, no wildcard; a label has at most 63 characters.",
    ),
]
FieldName = Annotated[
    str, msgspec.Meta(pattern=FIELD_NAME, max_length=256, description="Header field name; case does not matter.")
]
FieldValue = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[^\x00-\x08\x0a-\x1f\x7f]*" + END, max_length=4096, description="Header field value, one line."
    ),
]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=512, pattern=r"^[\x21-\x7e]+" + END)]
Timestamp = Annotated[
    str,
    msgspec.Meta(pattern=TIMESTAMP, description="Creation time, RFC 3339 in UTC to the second: 2026-11-21T12:00:00Z."),
]
Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
PathText = Annotated[str, msgspec.Meta(max_length=1024)]
Pem = Annotated[str, msgspec.Meta(min_length=1, description="One or more PEM blocks.")]
ValueType = Literal["Exact", "RegularExpression"]

__all__ = ["UNSET", "Unset"]


class Part(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    rename="camel",
    omit_defaults=True,
    gc=False,
):
    """A part of the document."""


class Certificate(Part, frozen=True):
    """A certificate chain with its private key."""

    certificate: Pem
    """The leaf first, then its intermediates."""
    private_key: Pem
    """Never returned by GET /config, and never shown in a message."""

    def __repr__(self) -> str:
        return "Certificate(<redacted>)"
