"""Which of the tunnel's requests each listener of a Gateway gets. The tunnel has two ports: 80 for http, 443 for https.

A listener gets the requests to its own port. It also gets those to the other port, unless that port is wanted by

- a listener of its Gateway, or of its own ListenerSet, for whatever hosts, or
- a listener of another ListenerSet, for hosts that include all of its own: a set takes from others only the hosts that
  it names.

Requests that a listener wants but cannot serve are not given to listeners of the other port (see `Wall`): a redirect
from http to https would lead to itself.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from proxy import document
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.model.part import Part
from tunnelgw.translate.drafts import Draft, drafts
from tunnelgw.translate.hostnames import ANY, covering
from tunnelgw.translate.names import short
from tunnelgw.translate.queries import View
from tunnelgw.translate.slots import PROTOCOLS
from tunnelgw.translate.verdicts import ObjectId


class OtherPort(Part, frozen=True):
    """The tunnel's port that is not the listener's own."""

    port: int
    protocol: Literal["HTTP", "HTTPS"]
    """The protocol of the Gateway's listeners on this port, since a document must have the same one for all of them."""


class Wall(Part, frozen=True):
    """Requests that no listener of the Gateway may get. In the document it is a listener to which no route leads."""

    name: str
    """The name of that listener."""
    port: int
    hostname: str


class TunnelPorts(Part, frozen=True):
    served: Mapping[str, tuple[int, ...]]
    """By the listener's name in the document: the ports whose requests it gets, its own first."""
    told: Mapping[str, OtherPort] = {}
    """The second of these ports, where the document has to state it: by itself the proxy gives a listener the requests
    to the other port only if the Gateway has no listener there."""


def tunnel_ports(view: View, key: Key) -> TunnelPorts:
    """A query about a Gateway of ours. It ignores that ListenerSets get nothing before the Gateway is accepted."""
    all_drafts = view.ask(drafts, key)
    served = [draft for draft in all_drafts if draft.is_on_tunnel]
    wanted = tuple(draft for draft in all_drafts if _wants_tunnel(draft))
    by_owner = _ports_by_owner(wanted)
    hostnames = {
        port: {each.listener.hostname for each in wanted if each.listener.port == port}
        for port in document.TUNNEL_PORTS
    }
    of_gateway = by_owner.get(ObjectId(Kind.GATEWAY, key), set())
    found: dict[str, tuple[int, ...]] = {}
    for draft in served:
        port, other = draft.listener.port, _other(draft.listener.port)
        is_wanted = other in of_gateway | by_owner[draft.owner]
        if is_wanted or not hostnames[other].isdisjoint(covering(draft.listener.hostname)):
            found[draft.name] = (port,)
        else:
            found[draft.name] = (port, other)
    others = {port: OtherPort(port, _protocol(port, served)) for port in document.TUNNEL_PORTS}
    told = {name: others[ports[1]] for name, ports in found.items() if len(ports) == 2 and hostnames[ports[1]]}
    return TunnelPorts(found, told)


def told_ports(view: View, key: Key) -> Mapping[str, OtherPort]:
    """A query: `TunnelPorts.told`, so that a change of `served` does not make all listeners be evaluated again."""
    return view.ask(tunnel_ports, key).told


def walls(
    key: Key,
    all_drafts: Sequence[Draft],
    served: Mapping[str, tuple[int, ...]],
    open_: Collection[str],
    holder: Callable[[int, str], Key | None],
) -> Iterator[Wall]:
    """The walls of Gateway `key`, whose listeners are `all_drafts`.

    `served`: see `TunnelPorts`. `open_`: names of the listeners to which the tunnel does lead. `holder`: which Gateway
    would get the requests to a port for a hostname if there were no wall.
    """
    for port in document.TUNNEL_PORTS:
        here = [draft for draft in all_drafts if _wants_tunnel(draft) and draft.listener.port == port]
        open_to = {draft.listener.hostname for draft in here if draft.name in open_}
        # If several conflict because they want the same hostname, the first one counts.
        shut = {draft.listener.hostname: draft for draft in reversed(here) if draft.name not in open_}
        elsewhere = [draft for draft in all_drafts if draft.name in open_ and draft.listener.port != port]
        lent = {draft.listener.hostname for draft in elsewhere if port in served[draft.name]}
        for hostname, draft in shut.items() if lent else ():
            patterns = {*covering(hostname)}
            is_own = open_to.isdisjoint(patterns) and not lent.isdisjoint(patterns)
            if is_own and holder(port, hostname) == key:
                yield Wall(short(f"{draft.name}@{port}"), port, hostname)
        if shut and not open_to and not lent:
            yield Wall(short(f"{key}@{port}"), port, ANY)


def _protocol(port: int, served: Iterable[Draft]) -> Literal["HTTP", "HTTPS"]:
    protocols = [draft.listener.protocol for draft in served if draft.listener.port == port]
    return "HTTPS" if (protocols or ["HTTPS" if port == 443 else "HTTP"])[0] == "HTTPS" else "HTTP"


def _wants_tunnel(draft: Draft) -> bool:
    return draft.listener.protocol in PROTOCOLS and draft.listener.port in document.TUNNEL_PORTS


def _ports_by_owner(wanted: Iterable[Draft]) -> dict[ObjectId, set[int]]:
    found: dict[ObjectId, set[int]] = {}
    for draft in wanted:
        found.setdefault(draft.owner, set()).add(draft.listener.port)
    return found


def _other(port: int) -> int:
    return sum(document.TUNNEL_PORTS) - port
