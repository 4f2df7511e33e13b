"""`POST /adjustendpoints` on bytes: decode, adjust, encode, and cache results.

external-dns sends every desired endpoint on every pass, in changing order, and hardly any of them has changed. An
endpoint's result depends on its own bytes alone, so results are cached by those bytes. Each pass keeps only the entries
it used, so the cache never holds more than one body's. If a limit of the store forbids something, the result is
computed anew for each listing, since it depends on whether that is already served. Any thread may call; nothing here
waits or uses the network.
"""

from collections import defaultdict
from collections.abc import Callable

import msgspec

from daemonkit.logs import get_logger
from dnswebhook import wire
from dnswebhook.adjust import Adjusted, adjust, merge_identified
from dnswebhook.domains import ProtectedNames
from dnswebhook.errors import excerpt
from dnswebhook.fit import Drop
from dnswebhook.model import Capabilities, Endpoint
from dnswebhook.served import Served

log = get_logger(__name__)

_News = tuple[tuple[str, str], tuple[Drop, ...], str]
"""What is logged about an endpoint, as in `_Remembered`: key, drops and limit."""


class _Remembered(msgspec.Struct, frozen=True, gc=False):
    encoded: bytes
    """Empty if no part of the endpoint can be held; the request's own bytes if there was nothing to adjust."""
    key: tuple[str, str]
    """Adjusted name and type; empty strings if the endpoint is dropped."""
    drops: tuple[Drop, ...] = ()
    identified: Endpoint | None = None
    """The adjusted endpoint, if a setIdentifier distinguishes it from others of its name and type."""
    limit: str = ""
    """As in `Adjusted`."""
    by_listing: Served | None = None
    """The listing that the result depends on."""

    @property
    def news(self) -> _News:
        return self.key, self.drops, self.limit


class Adjuster:
    def __init__(self, protected: ProtectedNames, on_drop: Callable[[Drop], None]) -> None:
        self._protected = protected
        self._on_drop = on_drop
        self._memory: tuple[Capabilities | None, dict[bytes, _Remembered]] = (None, {})
        self._told: frozenset[_News] = frozenset()
        """What the last call logged. An endpoint's bytes alone do not tell whether that is new: external-dns attaches
        an object's properties now to one of its names, now to another."""
        self._desired: tuple[dict[bytes, _Remembered], frozenset[tuple[str, str]]] = ({}, frozenset())
        """The record sets in the cache, computed on first use, and the cache they were computed from."""

    def adjust(self, body: bytes, capabilities: Capabilities, served: Served) -> bytes:
        """The response, in the shape of `body`. Raises wire.WireError and then leaves the cache unchanged."""
        wanted = wire.decode_endpoint_list(body)
        known_for, known = self._memory
        if known_for != capabilities:
            known = {}
        used: dict[bytes, _Remembered] = {}
        parts: list[bytes] = []
        identified: dict[tuple[str, str], list[tuple[int, Endpoint]]] = defaultdict(list)
        for index, raw in enumerate(wanted.items):
            key = bytes(raw)
            remembered = known.get(key) or used.get(key)
            if remembered is None or (remembered.by_listing is not None and remembered.by_listing is not served):
                remembered = self._work_out(key, wanted.place(index), capabilities, served)
            used[key] = remembered
            for drop in remembered.drops:
                self._on_drop(drop)
            if remembered.identified is not None:
                endpoint = remembered.identified
                identified[endpoint.dns_name, endpoint.record_type].append((len(parts), endpoint))
            if remembered.encoded:
                parts.append(remembered.encoded)
        self._memory = (capabilities, used)
        self._told = frozenset(each.news for each in used.values() if each.drops or each.limit)
        _merge(parts, identified)
        return wire.join_endpoints([part for part in parts if part], wanted.is_wrapped)

    def is_desired(self, name: str, record_type: str) -> bool | None:
        """Whether the last call requested this record set; None before the first call."""
        known_for, known = self._memory
        if known_for is None:
            return None
        known_in, desired = self._desired
        if known_in is not known:
            desired = frozenset(remembered.key for remembered in known.values())
            self._desired = (known, desired)
        return (name, record_type) in desired

    def _work_out(self, octets: bytes, place: str, capabilities: Capabilities, served: Served) -> _Remembered:
        endpoint, is_answer = wire.decode_wanted(octets, place)
        adjusted = adjust(endpoint, capabilities, self._protected.matches, served)
        remembered = self._remembered(octets, endpoint, is_answer, adjusted, served)
        if remembered.news not in self._told:
            self._tell(adjusted)
        return remembered

    @staticmethod
    def _remembered(
        octets: bytes, endpoint: Endpoint, is_answer: bool, adjusted: Adjusted, served: Served
    ) -> _Remembered:
        by_listing = served if adjusted.is_by_limit else None
        if adjusted.endpoint is None:
            return _Remembered(b"", ("", ""), adjusted.drops, by_listing=by_listing)
        kept = adjusted.endpoint
        key = (kept.dns_name, kept.record_type)
        identified = kept if endpoint.set_identifier else None
        encoded = octets if is_answer and kept == endpoint else wire.encode_endpoint(kept)
        return _Remembered(encoded, key, adjusted.drops, identified, adjusted.limit, by_listing)

    @staticmethod
    def _tell(adjusted: Adjusted) -> None:
        """Called once per endpoint, not once per pass."""
        for drop in adjusted.drops:
            log.warning(
                "endpoint dropped",
                reason=drop.reason,
                name=excerpt(drop.name),
                type=excerpt(drop.type),
                target=excerpt(drop.target) or None,
                detail=drop.detail,
            )
        if adjusted.limit and adjusted.endpoint is not None:
            log.warning(
                "endpoint left as it is in the store",
                name=adjusted.endpoint.dns_name,
                type=adjusted.endpoint.record_type,
                detail=adjusted.limit,
            )


def _merge(parts: list[bytes], identified: dict[tuple[str, str], list[tuple[int, Endpoint]]]) -> None:
    for members in identified.values():
        if len(members) > 1:
            merged = merge_identified([endpoint for _, endpoint in members])
            for index, _ in members:
                parts[index] = b""
            parts[members[0][0]] = wire.encode_endpoint(merged)
