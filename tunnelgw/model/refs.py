"""References from one object to another. Absent fields have the API's default, if there is one.

An explicit empty group is the core group; so it differs from an absent one if the default is another group.
"""

from tunnelgw.model.part import Part

GATEWAY_API = "gateway.networking.k8s.io"
CORE = ""


class ParentRef(Part, frozen=True):
    """A route's or a ListenerSet's parent. `namespace` empty: the namespace of the object that refers."""

    name: str
    group: str = GATEWAY_API
    kind: str = "Gateway"
    namespace: str = ""
    section_name: str = ""
    port: int = 0
    """0: any."""


class ObjectRef(Part, frozen=True):
    """A reference, by default to a Secret. `namespace` empty: the namespace of the object that refers."""

    name: str
    group: str = CORE
    kind: str = "Secret"
    namespace: str = ""


class LocalRef(Part, frozen=True):
    """A reference to an object of the same namespace; group and kind have no default."""

    group: str
    kind: str
    name: str


class ParametersRef(Part, frozen=True):
    group: str
    kind: str
    name: str
    namespace: str = ""


class SecretKeyRef(Part, frozen=True):
    """A key of a Secret; `key` empty: the default of the field with the reference."""

    name: str
    namespace: str = ""
    key: str = ""
