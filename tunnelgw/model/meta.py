"""What every object has besides its content, and the names by which objects are found."""

from typing import NamedTuple

import msgspec

from tunnelgw.model.part import Part

NO_STATUS = msgspec.Raw(b"{}")
LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN = rf"{LABEL}(\.{LABEL})*"
"""Kubernetes' two forms of names, as regular expressions for whole names; length is checked separately."""


class Key(NamedTuple):
    """Identifies an object among those of its kind. `namespace` is empty for cluster-scoped kinds."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class ObjectMeta(Part, frozen=True):
    name: str
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    """Rises with each change of the spec; 0 for kinds without a generation."""
    resource_version: str = ""
    creation_timestamp: str = ""
    """RFC 3339 in UTC to the second, as text: sorts by time."""
    deletion_timestamp: str = ""
    """Set if the object has been deleted but still exists."""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)


class Object(Part, frozen=True):
    """What all kinds have. `status` stays undecoded, since what other controllers wrote must be kept byte for byte."""

    metadata: ObjectMeta

    @property
    def key(self) -> Key:
        return self.metadata.key

    @property
    def age(self) -> tuple[str, str]:
        """Sorts older objects before younger ones, then by `namespace/name`: Gateway API's order for ties."""
        return (self.metadata.creation_timestamp, f"{self.metadata.namespace}/{self.metadata.name}")
