"""What each listener of a Gateway gets of the tunnel, which has two ports: 80 for http requests, 443 for https.

A listener gets the requests of its own port. It gets those of the other one too unless that port is wanted there: by a
listener of its Gateway or of its own ListenerSet for any host at all, by one of another ListenerSet for all of its
hosts. So a set takes from others only the hosts that it names. What is wanted and cannot be served stays shut, or a
redirect to https would lead in circles.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from proxy import document
from tunnelgw.model.conditions import Status
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
    """Of the tunnel, for a listener or for nobody."""

    port: int
    protocol: Literal["HTTP", "HTTPS"]
    """That of the Gateway's listeners there, as the proxy wants one for all."""


class Wall(Part, frozen=True):
    """Requests that no listener of the Gateway gets."""

    name: str
    """In the document."""
    at: OtherPort
    hostname: str


class TunnelPorts(Part, frozen=True):
    served: Mapping[str, tuple[int, ...]]
    """By the listener's name in the document: whose requests it gets, those of its own port first."""
    walls: tuple[Wall, ...] = ()
    told: Mapping[str, OtherPort] = {}
    """The second one of these ports where the proxy needs to be told: by itself it gives a listener both only if its
    Gateway has none at the other one."""


def tunnel_ports(view: View, key: Key) -> TunnelPorts:
    """A query about a Gateway that is ours."""
    all_drafts = view.ask(drafts, key)
    served = _served(all_drafts)
    if not served:
        return TunnelPorts({})
    wanted = tuple(draft for draft in all_drafts if _wants_tunnel(draft))
    by_owner = _ports_by_owner(wanted)
    hostnames = {port: {_hostname(each) for each in wanted if _port(each) == port} for port in document.TUNNEL_PORTS}
    of_gateway = by_owner.get(ObjectId(Kind.GATEWAY, key), set())
    found: dict[str, tuple[int, ...]] = {}
    lent: set[int] = set()
    for draft in served:
        port, other = _port(draft), _other(_port(draft))
        is_wanted = other in of_gateway | by_owner[draft.slot.owner]
        if is_wanted or not hostnames[other].isdisjoint(covering(_hostname(draft))):
            found[draft.name] = (port,)
        else:
            found[draft.name] = (port, other)
            lent.add(other)
    others = {port: OtherPort(port, _protocol(port, served)) for port in document.TUNNEL_PORTS}
    told = {name: others[ports[1]] for name, ports in found.items() if len(ports) == 2 and hostnames[ports[1]]}
    return TunnelPorts(found, tuple(_walls(key, wanted, served, lent, others)), told)


def told_ports(view: View, key: Key) -> Mapping[str, OtherPort]:
    """A query: `TunnelPorts.told`, so that listeners are not looked at again for what another one gets."""
    return view.ask(tunnel_ports, key).told


def _walls(
    key: Key, wanted: Sequence[Draft], served: Sequence[Draft], lent: Collection[int], others: Mapping[int, OtherPort]
) -> Iterator[Wall]:
    names = {draft.name for draft in served}
    for port in document.TUNNEL_PORTS:
        open_to = {_hostname(draft) for draft in served if _port(draft) == port}
        here = [draft for draft in wanted if _port(draft) == port and draft.name not in names]
        shut = {_hostname(draft): draft for draft in reversed(here)}  # several may want one hostname, and conflict
        if port in lent:
            for hostname, draft in shut.items():
                if open_to.isdisjoint(covering(hostname)):
                    yield Wall(short(f"{draft.name}@{port}"), others[port], hostname)
        elif shut and not open_to:
            yield Wall(short(f"{key}@{port}"), others[port], ANY)


def _served(all_drafts: Sequence[Draft]) -> list[Draft]:
    """Those that the tunnel leads to. ListenerSets of a Gateway that is not accepted wait."""
    own = [draft for draft in all_drafts if draft.slot.owner.kind is Kind.GATEWAY]
    waits = own and not any(draft.accepted.status is Status.TRUE and draft.slot.conflict is None for draft in own)
    return [draft for draft in (own if waits else all_drafts) if draft.is_on_tunnel]


def _protocol(port: int, served: Iterable[Draft]) -> Literal["HTTP", "HTTPS"]:
    protocols = [draft.slot.listener.protocol for draft in served if _port(draft) == port]
    return "HTTPS" if (protocols or ["HTTPS" if port == 443 else "HTTP"])[0] == "HTTPS" else "HTTP"


def _wants_tunnel(draft: Draft) -> bool:
    return draft.slot.listener.protocol in PROTOCOLS and _port(draft) in document.TUNNEL_PORTS


def _ports_by_owner(wanted: Iterable[Draft]) -> dict[ObjectId, set[int]]:
    found: dict[ObjectId, set[int]] = {}
    for draft in wanted:
        found.setdefault(draft.slot.owner, set()).add(_port(draft))
    return found


def _hostname(draft: Draft) -> str:
    return draft.slot.listener.hostname


def _port(draft: Draft) -> int:
    return draft.slot.listener.port


def _other(port: int) -> int:
    return sum(document.TUNNEL_PORTS) - port
