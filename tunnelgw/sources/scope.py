"""Where Secrets are read: everywhere, or only in some namespaces, each of which is listed and watched separately."""

from collections.abc import Collection
from typing import TypeAlias

from tunnelgw.model.kinds import Kind
from tunnelgw.model.snapshot import Entry

Part: TypeAlias = tuple[Kind, str]
"""What is listed separately: all objects of a kind, or those in one namespace."""


class SecretScope:
    """For use by one thread at a time."""

    def __init__(self, namespaces: Collection[str], home: str) -> None:
        """`namespaces`: where Secrets are read, in addition to `home`, the controller's own. Empty: everywhere."""
        self.namespaces = frozenset((*namespaces, home) if namespaces else ())
        """Empty: everywhere."""
        self._forbidden: set[str] = set()

    def parts(self, kind: Kind) -> list[Part]:
        return [(kind, name) for name in self.namespaces if kind is Kind.SECRET] or [(kind, "")]

    def forbid(self, namespace: str) -> None:
        """Record that we may not read the Secrets there now."""
        self._forbidden.add(namespace)

    def permit(self, namespace: str) -> None:
        self._forbidden.discard(namespace)

    def is_outside(self, entry: Entry) -> bool:
        """Whether the entry is a Secret that is not read."""
        is_limited = bool(self.namespaces) and entry.table is Kind.SECRET
        return is_limited and entry.key.namespace not in self.namespaces - self._forbidden
