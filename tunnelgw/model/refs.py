"""References from one object to another. Absent fields get the API's default, if there is one.

An explicit empty group is the core group, so it differs from an absent one where the default is another group.
"""

from tunnelgw.model.part import Part

GATEWAY_API = "gateway.networking.k8s.io"
CORE = ""


class ParentRef(Part, frozen=True):
    """The parent of a route or ListenerSet. `namespace` empty: that of the object that refers."""

    name: str
    group: str = GATEWAY_API
    kind: str = "Gateway"
    namespace: str = ""
    section_name: str = ""
    port: int = 0
    """0: any."""

    def __str__(self) -> str:
        """For people, without the port: `Gateway infra/lan/https`."""
        return f"{self.kind} {'/'.join(filter(None, (self.namespace, self.name, self.section_name)))}"


class ObjectRef(Part, frozen=True):
    """A reference, by default to a Secret. `namespace` empty: that of the object that refers."""

    name: str
    group: str = CORE
    kind: str = "Secret"
    namespace: str = ""


class LocalRef(Part, frozen=True):
    """A reference to an object in the same namespace; group and kind have no default."""

    group: str
    kind: str
    name: str


class ParametersRef(Part, frozen=True):
    group: str
    kind: str
    name: str
    namespace: str = ""


class SecretKeyRef(Part, frozen=True):
    """A key of a Secret; `key` empty: the default of the field that holds the reference."""

    name: str
    namespace: str = ""
    key: str = ""
