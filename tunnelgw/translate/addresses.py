"""The doors of a Gateway: the addresses that the proxy binds or a Service has, and the tunnel; and which ones it shows.

For a Service in front of the proxy, its load balancer's addresses are used, or for a type of Service without one, its
cluster IPs, which clients inside the cluster can reach. `direct.service.addresses` overrides both, for example with the
address of a balancer in front of node ports.

`spec.addresses` restricts a Gateway to the doors that it asks for: with only IP addresses it is not served through the
tunnel, with only the tunnel's hostname it has no direct door. Without `spec.addresses` it has every door of its class,
and shows one kind of address, since a DNS name cannot have a CNAME beside an A record.
"""

from tunnelgw.model.conditions import ConditionType, Finding, Reason
from tunnelgw.model.core import LoadBalancerIngress, Service
from tunnelgw.model.gateways import Gateway, GatewayAddress, is_ip_address
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.model.own import DirectService
from tunnelgw.model.part import Part
from tunnelgw.translate.endpoints import PORTS
from tunnelgw.translate.gateways import GatewaySetup, gateway_setup
from tunnelgw.translate.pools import plain_address, pool_share, same_address
from tunnelgw.translate.queries import View
from tunnelgw.translate.verdicts import false

TUNNEL_DOMAIN = "cfargotunnel.com"
MAX_SHOWN = 16
"""How many addresses a status can have."""
IP_ADDRESS, HOSTNAME = "IPAddress", "Hostname"
_EVERYWHERE = ("",)
_INSIDE = ("ClusterIP", "NodePort")
_BY_HAND = "in direct.service.addresses"


class Doors(Part, frozen=True):
    """Where requests to a Gateway come in."""

    shown: tuple[GatewayAddress, ...] = ()
    """For status.addresses."""
    bound: tuple[str, ...] = ()
    """IP addresses on which listeners are bound; an empty string stands for all addresses of the host."""
    ports: dict[int, int] | None = None
    """Ports of the Service in front of the proxy, with their target ports. None: clients use the bound port itself."""
    tunnel: str = ""
    findings: tuple[Finding, ...] = ()
    """Accepted or Programmed, if they are False because of an address."""


class _Offer(Part, frozen=True):
    """The direct addresses that a Gateway may have."""

    ips: tuple[str, ...] = ()
    hostnames: tuple[str, ...] = ()
    bound: tuple[str, ...] | None = None
    """As in `Doors`; None: the same as `ips`."""
    ports: dict[int, int] | None = None
    is_inside: bool = False
    """Only clients inside the cluster reach these addresses: they are shown only if there is nothing else to show."""
    lack: str = ""
    """Why there is no direct address although one was wanted."""


def doors(view: View, key: Key) -> Doors:
    """A query about a Gateway that is ours."""
    gateway, setup = view.get(Kind.GATEWAY, key), view.ask(gateway_setup, key)
    if not isinstance(gateway, Gateway) or setup is None or setup.problem:
        return Doors()
    offer = _offer(view, key, setup)
    wanted = gateway.spec.addresses
    return _requested(wanted, setup, offer) if wanted else _all(setup, offer)


def _offer(view: View, key: Key, setup: GatewaySetup) -> _Offer:
    direct = setup.direct
    if direct is None:
        return _Offer()
    if direct.service is not None:
        return _service_offer(view, direct.service, key.namespace)
    if not direct.addresses:
        return _Offer()
    share = view.ask(pool_share, key)
    lack = "" if share else f"all addresses of the pool ({len(direct.addresses)}) are taken by older Gateways"
    return _Offer(share, lack=lack)


def _service_offer(view: View, ref: DirectService, namespace: str) -> _Offer:
    """`namespace`: the Gateway's, which is the default for the Service that its GatewayConfig names."""
    key = Key(ref.namespace or namespace, ref.name)
    service = view.get(Kind.SERVICE, key)
    if not isinstance(service, Service):
        return _Offer(lack=f"Service {key}, which leads to the proxy, does not exist")
    ports = {
        port.port: target
        for port in service.spec.ports or ()
        if isinstance(target := port.target_port or port.port, int) and target in PORTS and port.protocol == "TCP"
    }
    if ref.addresses:
        ips = tuple(address for address in ref.addresses if is_ip_address(address))
        hostnames = tuple(address for address in ref.addresses if not is_ip_address(address))
        return _Offer(ips, hostnames, _EVERYWHERE, ports)
    if service.spec.type in _INSIDE:
        ips = tuple(address for address in service.spec.cluster_ips or () if is_ip_address(address))
        lack = "" if ips else f"Service {key} has no address of the cluster; name its addresses, {_BY_HAND}"
        return _Offer(ips, (), _EVERYWHERE if ips else (), ports, is_inside=True, lack=lack)
    ingress: tuple[LoadBalancerIngress, ...] = service.status.load_balancer.ingress or ()
    ips = tuple(entry.ip for entry in ingress if entry.ip)
    hostnames = tuple(entry.hostname for entry in ingress if entry.hostname)
    lack = "" if ingress else f"Service {key} has no address yet: its load balancer gives it one, or you do, {_BY_HAND}"
    return _Offer(ips, hostnames, _EVERYWHERE if ingress else (), ports, lack=lack)


def _all(setup: GatewaySetup, offer: _Offer) -> Doors:
    direct = _shown(IP_ADDRESS, offer.ips) + _shown(HOSTNAME, offer.hostnames)
    tunnel = _shown(HOSTNAME, _tunnel_names(setup))
    is_tunnel_first = setup.publish == "Tunnel" or (offer.is_inside and setup.publish != "Direct")
    first, second = (tunnel, direct) if is_tunnel_first else (direct, tunnel)
    lack = offer.lack or "neither a tunnel nor direct addresses: see `parametersRef` of the GatewayClass"
    findings = () if direct or tunnel else (_not_assigned(lack),)
    return Doors((first or second)[:MAX_SHOWN], _bound(offer), offer.ports, setup.tunnel, findings)


def _requested(wanted: tuple[GatewayAddress, ...], setup: GatewaySetup, offer: _Offer) -> Doors:
    foreign = next((address for address in wanted if address.type not in (IP_ADDRESS, HOSTNAME)), None)
    if foreign is not None:
        message = f"addresses of type {foreign.type} are not supported, want {IP_ADDRESS} or {HOSTNAME}"
        return Doors(findings=(false(ConditionType.ACCEPTED, Reason.UNSUPPORTED_ADDRESS, message),))
    wanted = _each_once(wanted)
    granted = _granted(wanted, {IP_ADDRESS: [*offer.ips], HOSTNAME: [*_tunnel_names(setup), *offer.hostnames]})
    shown = tuple(GatewayAddress(granted[place], wanted[place].type) for place in sorted(granted))
    direct = tuple(address.value for address in shown if address.value in offer.ips + offer.hostnames)
    bound = direct if offer.bound is None or not direct else offer.bound
    has_tunnel = any(address.value in _tunnel_names(setup) for address in shown)
    refused = [address for place, address in enumerate(wanted) if place not in granted]
    return Doors(shown, bound, offer.ports, setup.tunnel if has_tunnel else "", _refusals(refused, setup, offer))


def _each_once(wanted: tuple[GatewayAddress, ...]) -> tuple[GatewayAddress, ...]:
    """The API allows the same address twice if it is spelled differently."""
    found: dict[tuple[str, str, str | int], GatewayAddress] = {}
    for place, address in enumerate(wanted):
        found.setdefault((address.type, address.routability, plain_address(address.value) or place), address)
    return tuple(found.values())


def _granted(wanted: tuple[GatewayAddress, ...], free: dict[str, list[str]]) -> dict[int, str]:
    """The granted addresses, by index of the wanted ones. Entries without a value get what the others leave."""
    granted: dict[int, str] = {}
    for place, address in sorted(enumerate(wanted), key=lambda item: not item[1].value):
        values = [] if address.routability else free[address.type]
        found = next((value for value in values if not address.value or same_address(value, address.value)), None)
        if found is not None:
            values.remove(found)
            granted[place] = found
    return granted


def _refusals(refused: list[GatewayAddress], setup: GatewaySetup, offer: _Offer) -> tuple[Finding, ...]:
    if scopes := dict.fromkeys(address.routability for address in refused if address.routability):
        message = f"routability {', '.join(scopes)} cannot be promised, want none"
        return (false(ConditionType.PROGRAMMED, Reason.ADDRESS_NOT_USABLE, message),)
    if unusable := [address.value for address in refused if address.value]:
        pool = setup.direct.addresses if setup.direct else ()
        known = tuple(dict.fromkeys(pool + offer.ips + _tunnel_names(setup) + offer.hostnames))
        wanted = ", ".join(known) or offer.lack or "none"
        message = f"{', '.join(unusable)}: not among the addresses that this Gateway can have: {wanted}"
        return (false(ConditionType.PROGRAMMED, Reason.ADDRESS_NOT_USABLE, message),)
    if any(address.type == IP_ADDRESS for address in refused):
        lack = "there is no further direct address" if offer.ips else "there are no direct addresses"
        return (_not_assigned(offer.lack or f"{lack}, see `direct` of the GatewayClassConfig"),)
    return (_not_assigned("there is no further hostname, see `tunnelID` of the GatewayClassConfig"),) if refused else ()


def _not_assigned(lack: str) -> Finding:
    return false(ConditionType.PROGRAMMED, Reason.ADDRESS_NOT_ASSIGNED, lack)


def _tunnel_names(setup: GatewaySetup) -> tuple[str, ...]:
    return (f"{setup.tunnel}.{TUNNEL_DOMAIN}",) if setup.tunnel else ()


def _shown(type_: str, values: tuple[str, ...]) -> tuple[GatewayAddress, ...]:
    return tuple(GatewayAddress(value, type_) for value in values)


def _bound(offer: _Offer) -> tuple[str, ...]:
    return offer.ips if offer.bound is None else offer.bound
