"""Which Gateway gets which address of a pool.

If a pool has one address, all share it. From a larger one each Gateway gets an address of its own: first Gateways get
the addresses that they ask for, then those that they already hold (`Gateway.held`), then free ones, older Gateways
before younger ones. So addresses stay where they are when other Gateways come and go, and a restarted controller
decides like the previous one, as far as statuses show the addresses.
"""

import itertools
from collections.abc import Iterable
from typing import NamedTuple

from proxy.document import canonical_address
from tunnelgw.model.gateways import Gateway, GatewayAddress
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.translate.gateways import gateway_setup, gateways_of
from tunnelgw.translate.queries import View

Shares = tuple[tuple[Key, tuple[str, ...]], ...]


class PoolId(NamedTuple):
    """Each data plane and each class has pools of its own."""

    data_plane: str
    class_name: str


class Claim(NamedTuple):
    gateway: Key
    class_name: str
    pool: tuple[str, ...]
    requested: tuple[str, ...]
    """Addresses of the pool that the Gateway asks for."""
    others: int
    """How many further addresses the Gateway wants."""
    former: tuple[str, ...]
    """Addresses of the pool that the Gateway already holds."""


def pool_share(view: View, key: Key) -> tuple[str, ...]:
    """A query: the addresses that a Gateway gets from its pool."""
    setup = view.ask(gateway_setup, key)
    if setup is None:
        return ()
    shares = view.ask(pool_shares, PoolId(setup.data_plane, setup.class_name))
    return next((addresses for owner, addresses in shares if owner == key), ())


def pool_shares(view: View, pool: PoolId) -> Shares:
    """A query: the addresses of a pool that each Gateway gets."""
    found = [view.ask(claim, key) for key in view.ask(gateways_of, pool.data_plane)]
    claims = [entry for entry in found if entry and entry.class_name == pool.class_name]
    addresses = claims[0].pool if claims else ()
    if len(addresses) <= 1:
        return tuple((entry.gateway, addresses) for entry in claims)
    return _divide(claims, addresses)


def claim(view: View, key: Key) -> Claim | None:
    """A query: what a Gateway wants from its pool. None: it has no pool."""
    gateway, setup = view.get(Kind.GATEWAY, key), view.ask(gateway_setup, key)
    if not isinstance(gateway, Gateway) or setup is None or setup.direct is None:
        return None
    pool = setup.direct.addresses
    wanted = gateway.spec.addresses or (GatewayAddress(),)
    values = [address.value for address in wanted if address.type == "IPAddress" and not address.routability]
    return Claim(key, setup.class_name, pool, _of(pool, values), values.count(""), _of(pool, gateway.held))


def same_address(first: str, second: str) -> bool:
    """Compares IP addresses whatever their spelling, and hostnames in either case."""
    return plain_address(first) == plain_address(second)


def plain_address(address: str) -> str:
    """The address in its canonical spelling, which is the proxy's: it refuses a document with a socket twice."""
    return canonical_address(address).lower()


def _of(pool: tuple[str, ...], values: Iterable[str]) -> tuple[str, ...]:
    wanted = {plain_address(value) for value in values if value}
    return tuple(address for address in pool if plain_address(address) in wanted) if wanted else ()


def _divide(claims: list[Claim], pool: tuple[str, ...]) -> Shares:
    shares = {entry.gateway: [*entry.requested] for entry in claims}
    requested = {address for entry in claims for address in entry.requested}
    free = dict.fromkeys(address for address in pool if address not in requested)
    for is_former in (True, False):
        for entry in claims:
            share = shares[entry.gateway]
            missing = max(entry.others + len(entry.requested) - len(share), 0)
            candidates = (address for address in entry.former if address in free) if is_former else iter(free)
            for address in [*itertools.islice(candidates, missing)]:
                share.append(address)
                del free[address]
    return tuple((gateway, tuple(addresses)) for gateway, addresses in shares.items())
