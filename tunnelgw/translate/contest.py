"""Conflicts between Gateways that share a proxy: the oldest one wins, and conditions of the others report it.

A socket (address and port) has one protocol, and each hostname on it belongs to one listener; a later listener that
conflicts does not get the socket. On the tunnel, conflicts are only reported: there the proxy itself prefers the oldest
Gateway, request by request.
"""

from collections.abc import Mapping
from typing import NamedTuple

from tunnelgw.model.conditions import Reason, Status
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.model.part import Part
from tunnelgw.translate.drafts import Draft, Obstacle, Socket, drafts
from tunnelgw.translate.gateways import gateway_setup, gateways_of
from tunnelgw.translate.hostnames import by_precision
from tunnelgw.translate.queries import View
from tunnelgw.translate.tunnelports import tunnel_ports


class Loss(Part, frozen=True):
    """What a listener does not get."""

    sockets: tuple[Socket, ...] = ()
    obstacles: tuple[Obstacle, ...] = ()
    is_off_tunnel: bool = False
    """All of its requests through the tunnel go to older Gateways."""

    def rest(self, draft: Draft) -> tuple[Socket, ...]:
        """The sockets that the listener does get."""
        return tuple(socket for socket in draft.sockets if socket not in self.sockets)

    def is_fatal(self, draft: Draft) -> bool:
        """Whether no door is left to the listener."""
        return draft.is_served and not (self.rest(draft) or draft.is_on_tunnel)

    def is_in_vain(self, draft: Draft) -> bool:
        """Whether the listener has no socket, and all of its requests through the tunnel go to older Gateways."""
        return self.is_off_tunnel and not self.rest(draft)


NO_LOSS = Loss()


Losses = Mapping[str, Loss]
"""By the listener's name in the document."""


class Contest(Part, frozen=True):
    losses: Mapping[Key, Losses]
    """By Gateway."""
    hosts: Mapping[tuple[int, str], Key]
    """The Gateway that gets the tunnel's requests, by port and hostname."""


def losses(view: View, key: Key) -> Losses:
    """A query about a Gateway that is ours."""
    setup = view.ask(gateway_setup, key)
    return view.ask(all_losses, setup.data_plane).get(key, {}) if setup else {}


def all_losses(view: View, data_plane: str) -> Mapping[Key, Losses]:
    """A query: the losses by Gateway. Equal as long as only hosts change that no Gateway loses, so updates end here."""
    return view.ask(contest, data_plane).losses


def holder(view: View, key: Key, port: int, hostname: str) -> Key | None:
    """The Gateway of the same data plane as `key` that gets the tunnel's requests to a port for a hostname.

    For a wildcard: its hosts that no Gateway names more precisely. None: no Gateway gets them.
    """
    setup = view.ask(gateway_setup, key)
    hosts = view.ask(contest, setup.data_plane).hosts if setup else {}
    return next((hosts[port, pattern] for pattern in by_precision(hostname) if (port, pattern) in hosts), None)


def contest(view: View, data_plane: str) -> Contest:
    """A query: what the listeners of each Gateway on a data plane get, and what they do not get."""
    taken = _Taken({}, {})
    found: dict[Key, Losses] = {}
    for key in view.ask(gateways_of, data_plane):
        if lost := _losses(key, view.ask(drafts, key), view.ask(tunnel_ports, key).served, taken):
            found[key] = lost
    return Contest(found, taken.hosts)


def is_accepted(draft: Draft, loss: Loss) -> bool:
    return draft.accepted.status is Status.TRUE and draft.slot.conflict is None and not loss.is_fatal(draft)


class _Taken(NamedTuple):
    sockets: dict[Socket, dict[str, tuple[Key, Draft]]]
    """Listeners by hostname; those of one socket have one protocol."""
    hosts: dict[tuple[int, str], Key]
    """The oldest Gateway, by port and hostname of the tunnel."""


def _losses(key: Key, all_drafts: tuple[Draft, ...], ports: Mapping[str, tuple[int, ...]], taken: _Taken) -> Losses:
    """`ports`: the tunnel's ports of each listener, by the listener's name in the document."""
    own = [draft for draft in all_drafts if draft.owner.kind is Kind.GATEWAY]
    lost = {draft.name: _lost(key, draft, taken, ports.get(draft.name, ())) for draft in own if draft.is_served}
    # ListenerSets of a Gateway that is not accepted have to wait, and meanwhile take nothing from others.
    if not own or any(is_accepted(draft, lost.get(draft.name, NO_LOSS)) for draft in own):
        for draft in all_drafts[len(own) :]:
            if draft.is_served:
                lost[draft.name] = _lost(key, draft, taken, ports.get(draft.name, ()))
    return {name: loss for name, loss in lost.items() if loss != NO_LOSS}


def _lost(key: Key, draft: Draft, taken: _Taken, ports: tuple[int, ...]) -> Loss:
    """What the listener does not get. What was free is marked as taken by it."""
    lost: list[Socket] = []
    obstacles: list[Obstacle] = []
    for socket in draft.sockets:
        holders = taken.sockets.setdefault(socket, {})
        winner = _winner(holders, draft)
        if winner is None:
            holders[draft.listener.hostname] = key, draft
        else:
            lost.append(socket)
            obstacles.append(Obstacle(Reason.PORT_UNAVAILABLE, _told(socket, *winner)))
    lost_ports = 0
    for port in ports:
        host = draft.listener.hostname
        winner_key = taken.hosts.setdefault((port, host), key)
        if winner_key != key:
            lost_ports += 1
            scheme = "https" if port == 443 else "http"
            message = f"{scheme} requests of the tunnel for {host or 'any host'} go to the older Gateway {winner_key}"
            obstacles.append(Obstacle(Reason.HOSTNAME_CONFLICT, message))
    return Loss(tuple(lost), tuple(obstacles), bool(ports) and lost_ports == len(ports))


def _winner(holders: Mapping[str, tuple[Key, Draft]], draft: Draft) -> tuple[Key, Draft] | None:
    """The listener that has the hostname on the socket, or that uses the socket with another protocol."""
    listener = draft.listener
    first = next(iter(holders.values()), None)
    if first is not None and first[1].listener.protocol != listener.protocol:
        return first
    return holders.get(listener.hostname)


def _told(socket: Socket, owner: Key, winner: Draft) -> str:
    address, port = socket
    listener = winner.listener
    what = f"{listener.protocol} for {listener.hostname or 'any host'}"
    return f"port {port} of {address or 'the proxy'} serves {what} for listener {listener.name} of Gateway {owner}"
