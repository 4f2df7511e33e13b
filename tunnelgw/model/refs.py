"""References from one object to another. Absent parts carry the default of the API where it has one.

An explicit empty group is the core group and thus differs from an absent one wherever the default is another.
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
    """To a Secret unless it says otherwise. `namespace` empty: the namespace of the object that refers."""

    name: str
    group: str = CORE
    kind: str = "Secret"
    namespace: str = ""


class LocalRef(Part, frozen=True):
    """To an object of the same namespace; group and kind have no default."""

    group: str
    kind: str
    name: str


class ParametersRef(Part, frozen=True):
    group: str
    kind: str
    name: str
    namespace: str = ""


class SecretKeyRef(Part, frozen=True):
    """A key of a Secret; `key` empty: the kind of reference says which."""

    name: str
    namespace: str = ""
    key: str = ""
