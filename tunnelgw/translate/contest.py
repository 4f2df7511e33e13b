"""Gateways that share a proxy, and want the same: the oldest one gets it, and the others are told.

On a socket (address and port) one protocol is spoken, and each hostname belongs to one listener; who comes later does
not get the socket. On the tunnel the proxy itself lets the oldest Gateway win, request by request, so that there
nothing is taken away here, only told.
"""

from collections.abc import Mapping

from tunnelgw.model.conditions import Reason
from tunnelgw.model.meta import Key
from tunnelgw.model.part import Part
from tunnelgw.translate.drafts import TUNNEL_PORTS, Draft, Obstacle, Socket, drafts
from tunnelgw.translate.gateways import gateway_setup, gateways_of
from tunnelgw.translate.queries import View


class Loss(Part, frozen=True):
    """What a listener does not get."""

    sockets: tuple[Socket, ...] = ()
    obstacles: tuple[Obstacle, ...] = ()


Losses = Mapping[str, Loss]
"""By the listener's name in the document."""


def losses(view: View, key: Key) -> Losses:
    """A query about a Gateway that is ours."""
    setup = view.ask(gateway_setup, key)
    return view.ask(contest, setup.data_plane).get(key, {}) if setup else {}


def contest(view: View, data_plane: str) -> Mapping[Key, Losses]:
    """A query: who does not get what on a data plane, by Gateway."""
    sockets: dict[Socket, list[tuple[Key, Draft]]] = {}
    hosts: dict[tuple[int, str], Key] = {}
    found: dict[Key, Losses] = {}
    for key in view.ask(gateways_of, data_plane):
        served = [draft for draft in view.ask(drafts, key) if draft.is_served]
        lost = {draft.name: _lost(key, draft, sockets, hosts, _tunnel_ports(draft, served)) for draft in served}
        if any(loss != Loss() for loss in lost.values()):
            found[key] = {name: loss for name, loss in lost.items() if loss != Loss()}
    return found


def _tunnel_ports(draft: Draft, served: list[Draft]) -> tuple[int, ...]:
    """What a listener serves of the tunnel: a Gateway with only one of the two ports gets the requests of both."""
    ports = {other.slot.listener.port for other in served if other.is_on_tunnel}
    if not draft.is_on_tunnel:
        return ()
    return TUNNEL_PORTS if len(ports) == 1 else (draft.slot.listener.port,)


def _lost(
    key: Key,
    draft: Draft,
    sockets: dict[Socket, list[tuple[Key, Draft]]],
    hosts: dict[tuple[int, str], Key],
    tunnel_ports: tuple[int, ...],
) -> Loss:
    """Also takes what is free."""
    lost: list[Socket] = []
    obstacles: list[Obstacle] = []
    for socket in draft.sockets:
        holders = sockets.setdefault(socket, [])
        winner = next(((owner, holder) for owner, holder in holders if _excludes(holder, draft)), None)
        if winner is None:
            holders.append((key, draft))
        else:
            lost.append(socket)
            obstacles.append(Obstacle(Reason.PORT_UNAVAILABLE, _told(socket, *winner)))
    for port in tunnel_ports:
        host = draft.slot.listener.hostname
        winner_key = hosts.setdefault((port, host), key)
        if winner_key != key:
            scheme = "https" if port == 443 else "http"
            message = f"{scheme} requests of the tunnel for {host or 'any host'} go to the older Gateway {winner_key}"
            obstacles.append(Obstacle(Reason.HOSTNAME_CONFLICT, message))
    return Loss(tuple(lost), tuple(obstacles))


def _excludes(holder: Draft, draft: Draft) -> bool:
    mine, other = draft.slot.listener, holder.slot.listener
    return mine.protocol != other.protocol or mine.hostname == other.hostname


def _told(socket: Socket, owner: Key, holder: Draft) -> str:
    address, port = socket
    listener = holder.slot.listener
    what = f"{listener.protocol} for {listener.hostname or 'any host'}"
    return f"port {port} of {address or 'the proxy'} serves {what} for listener {listener.name} of Gateway {owner}"
