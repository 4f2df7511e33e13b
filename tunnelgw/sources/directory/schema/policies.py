"""Shapes of ReferenceGrant and BackendTLSPolicy."""

from typing import Any

from tunnelgw.model.meta import SUBDOMAIN
from tunnelgw.sources.directory.schema.common import (
    HOSTNAME,
    KEY,
    LOCAL_REF,
    NAME,
    NAMESPACE,
    OPTIONS,
    PRECISE_HOSTNAME,
    SECTION,
    group,
    kind,
    needs_by,
    told_apart,
)
from tunnelgw.sources.directory.schema.shapes import Fields, Items, Text

REFERENCE_GRANT = Fields(
    {
        "from": Items(
            Fields({"group": group(), "kind": kind(), "namespace": NAMESPACE}, "group", "kind", "namespace"), 1, 16
        ),
        "to": Items(Fields({"group": group(), "kind": kind(), "name": NAME}, "group", "kind"), 1, 16),
    },
    "from",
    "to",
)


def _authorities(validation: Any) -> str | None:
    if ("caCertificateRefs" in validation) == ("wellKnownCACertificates" in validation):
        return "exactly one of caCertificateRefs and wellKnownCACertificates must be set"
    return None


_WELL_KNOWN = rf"System|{SUBDOMAIN}/({KEY})"

BACKEND_TLS_POLICY = Fields(
    {
        "targetRefs": Items(
            Fields({"group": group(), "kind": kind(), "name": NAME, "sectionName": SECTION}, "group", "kind", "name"),
            1,
            16,
            rules=told_apart("sectionName"),
        ),
        "validation": Fields(
            {
                "hostname": PRECISE_HOSTNAME,
                "caCertificateRefs": Items(LOCAL_REF, 1, 8),
                "wellKnownCACertificates": Text(1, 253, _WELL_KNOWN, "System or a name such as example.org/name"),
                "subjectAltNames": Items(
                    Fields(
                        {
                            "type": Text(words=("Hostname", "URI")),
                            "hostname": HOSTNAME,
                            "uri": Text(1, 253, r"[^:/?#]+:(//[^/?#]*)[^?#]*(\?[^#]*)?(#.*)?", "a URI with a host"),
                        },
                        "type",
                        rules=[needs_by("type", {"Hostname": "hostname", "URI": "uri"})],
                    ),
                    0,
                    5,
                ),
            },
            "hostname",
            rules=[_authorities],
        ),
        "options": OPTIONS,
    },
    "targetRefs",
    "validation",
)
