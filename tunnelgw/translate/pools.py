"""Which Gateway has which address of a pool.

A pool of one address is shared. Of a larger one each Gateway gets its own: first the addresses that Gateways ask for,
then those that their status shows already, then what is free, older Gateways before younger. So addresses stay where
they are when other Gateways come and go, and a controller that starts anew decides as the one before.
"""

import ipaddress
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from tunnelgw.model.gateways import Gateway, GatewayAddress
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.model.part import Part
from tunnelgw.translate.gateways import gateway_setup, gateways_of
from tunnelgw.translate.queries import View

Shares = tuple[tuple[Key, tuple[str, ...]], ...]


class PoolId(NamedTuple):
    """Each data plane and each class has pools of its own."""

    data_plane: str
    class_name: str


class _Status(Part, frozen=True):
    addresses: tuple[GatewayAddress, ...] = ()


class _Claim(NamedTuple):
    gateway: Key
    requested: tuple[str, ...]
    """Addresses of the pool that it asks for."""
    others: int
    """How many more it wants."""
    former: tuple[str, ...]
    """Addresses of the pool that its status shows."""


def pool_share(view: View, key: Key) -> tuple[str, ...]:
    """A query: the addresses of a pool that one Gateway has."""
    setup = view.ask(gateway_setup, key)
    if setup is None:
        return ()
    shares = view.ask(pool_shares, PoolId(setup.data_plane, setup.class_name))
    return next((addresses for owner, addresses in shares if owner == key), ())


def pool_shares(view: View, pool: PoolId) -> Shares:
    """A query: who has what of a pool."""
    addresses: tuple[str, ...] = ()
    claims: list[_Claim] = []
    for key in view.ask(gateways_of, pool.data_plane):
        gateway, setup = view.get(Kind.GATEWAY, key), view.ask(gateway_setup, key)
        if isinstance(gateway, Gateway) and setup and setup.class_name == pool.class_name and setup.direct:
            addresses = setup.direct.addresses
            claims.append(_claim(gateway, addresses))
    if len(addresses) <= 1:
        return tuple((claim.gateway, addresses) for claim in claims)
    return _divide(claims, addresses)


def same_address(first: str, second: str) -> bool:
    """IP addresses may be spelled in several ways, hostnames in either case."""
    try:
        return ipaddress.ip_address(first) == ipaddress.ip_address(second)
    except ValueError:
        return first.lower() == second.lower()


def _claim(gateway: Gateway, pool: tuple[str, ...]) -> _Claim:
    wanted = gateway.spec.addresses or (GatewayAddress(),)
    values = [address.value for address in wanted if address.type == "IPAddress"]
    return _Claim(gateway.key, _of(pool, values), values.count(""), _of(pool, _former(gateway)))


def _former(gateway: Gateway) -> list[str]:
    try:
        status = msgspec.json.decode(gateway.status, type=_Status)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return []
    return [address.value for address in status.addresses]


def _of(pool: tuple[str, ...], values: Iterable[str]) -> tuple[str, ...]:
    return tuple(address for address in pool if any(value and same_address(address, value) for value in values))


def _divide(claims: list[_Claim], pool: tuple[str, ...]) -> Shares:
    shares = {claim.gateway: [*claim.requested] for claim in claims}
    taken = {address for claim in claims for address in claim.requested}

    for is_former in (True, False):
        for claim in claims:
            share = shares[claim.gateway]
            missing = max(claim.others + len(claim.requested) - len(share), 0)
            candidates = claim.former if is_former else pool
            given = [address for address in candidates if address not in taken][:missing]
            share += given
            taken.update(given)
    return tuple((gateway, tuple(addresses)) for gateway, addresses in shares.items())
