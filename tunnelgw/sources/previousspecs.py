"""Objects that keep their previous spec while something that they name now cannot be read.

If what they wait for does not come in time (see `settling`), they are translated with that spec, so what they named
then is still served: until all Secrets and ConfigMaps that they name now have been read or are known to be missing; and
for a GatewayClass or Gateway, while it names a configuration that is not in the store, of a kind that is behind.
"""

import msgspec

from tunnelgw.model.gateways import Gateway
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Object
from tunnelgw.model.snapshot import Entry
from tunnelgw.sources.nameddata import NamedData
from tunnelgw.sources.references import WithPreviousSpec, named, parameters
from tunnelgw.sources.settling import Settling
from tunnelgw.sources.tables import Tables
from tunnelgw.sources.unread import Unread


class PreviousSpecs:
    """For use by one thread at a time."""

    def __init__(self, home: str, tables: Tables, unread: Unread, settling: Settling, data: NamedData) -> None:
        """`home`: the controller's namespace."""
        self._home = home
        self._tables = tables
        self._unread = unread
        self._settling = settling
        self._data = data
        self._entries: set[Entry] = set()
        """Objects in the tables whose `previous_spec` is set."""

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._entries)

    def kept(self, entry: Entry, old: Object | None, item: WithPreviousSpec) -> WithPreviousSpec:
        """The object with the spec of `old` as `previous_spec`, if its spec has changed."""
        previous = None
        if isinstance(old, WithPreviousSpec):
            previous = old.previous_spec if old.spec == item.spec or self._names_unread(old) else old.spec
        (self._entries.discard if previous is None else self._entries.add)(entry)
        return msgspec.structs.replace(item, previous_spec=previous)

    def drop(self, entry: Entry) -> None:
        """The object is gone."""
        self._entries.discard(entry)

    def clear(self) -> None:
        """Clear `previous_spec` of all objects that name nothing unread any more.

        A Gateway that still names an unread Secret, but whose configuration is known, is translated with that
        configuration, and otherwise with its previous spec.
        """
        for entry in [*self._entries]:
            item = self._tables.get(entry)
            if not isinstance(item, WithPreviousSpec):
                continue
            new: WithPreviousSpec = item
            if not self._names_unread(item):
                self._entries.discard(entry)
                new = msgspec.structs.replace(item, previous_spec=None)
            elif isinstance(item, Gateway) and item.previous_spec and not self._has_unread_parameters(item):
                previous = msgspec.structs.replace(item.previous_spec, infrastructure=item.spec.infrastructure)
                new = msgspec.structs.replace(item, previous_spec=previous)
            if self._tables.put(Kind(entry.table), new):
                self._data.follow(item, new)

    def _names_unread(self, item: WithPreviousSpec) -> bool:
        return self._has_unread_parameters(item) or not self._unread.is_disjoint(named(item, self._home))

    def _has_unread_parameters(self, item: WithPreviousSpec) -> bool:
        config = parameters(item)
        if config is None:
            return False
        return self._settling.is_behind(Kind(config.table)) and self._tables.is_unknown(config)
