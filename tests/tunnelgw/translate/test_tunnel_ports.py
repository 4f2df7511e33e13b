"""Which listener of a Gateway, or of its ListenerSets, gets a request of the tunnel, asked of the proxy's router."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from hypothesis import example, given
from hypothesis import strategies as st

from proxy import document, routing
from tests.tunnelgw.golden.given import TUNNEL, snapshot_of
from tests.tunnelgw.translate.world import translation_of

GATEWAY = "g"
DOORS = {80: routing.TUNNEL_HTTP, 443: routing.TUNNEL_HTTPS}
HOSTS = ("a.x.example", "b.x.example", "c.b.x.example", "y.example")
HOSTNAMES = ("", "*.example", "*.x.example", "a.x.example", "*.b.x.example", "y.example")


class Entry(NamedTuple):
    owner: str
    """The Gateway or a set of this name."""
    port: int
    hostname: str
    is_broken: bool = False
    """Its certificate is missing."""
    protocol: str = ""
    """Empty: that of the tunnel at this port."""

    @property
    def name(self) -> str:
        return f"l{HOSTNAMES.index(self.hostname)}-{self.port}"

    @property
    def document_name(self) -> str:
        return f"apps/g/{self.name}" if self.owner == GATEWAY else f"apps/g/apps/{self.owner}/{self.name}"

    def fits(self, host: str) -> bool:
        return host.endswith(self.hostname.removeprefix("*")) if "*" in self.hostname else self.hostname in ("", host)

    def spec(self) -> dict[str, Any]:
        tls = {"tls": {"certificateRefs": [{"name": "missing"}]}} if self.is_broken else {}
        protocol = self.protocol or ("HTTPS" if self.port == 443 else "HTTP")
        return {"name": self.name, "port": self.port, "protocol": protocol, "hostname": self.hostname, **tls}


PORTS = st.sampled_from([80, 443])
NO_PROTOCOL = st.just("")
OWNERS = st.sampled_from([GATEWAY, "s1", "s2"])
HTTP = st.builds(Entry, OWNERS, st.just(80), st.sampled_from(HOSTNAMES), st.just(False), NO_PROTOCOL)
HTTPS = st.builds(Entry, OWNERS, st.just(443), st.sampled_from(HOSTNAMES), st.booleans(), NO_PROTOCOL)
ENTRIES = st.lists(HTTP | HTTPS, max_size=6, unique_by=lambda entry: (entry.port, entry.hostname))
OF_GATEWAY = st.builds(Entry, st.just(GATEWAY), PORTS, st.sampled_from(HOSTNAMES), st.just(False), NO_PROTOCOL)
ANY = st.builds(Entry, OWNERS, PORTS, st.sampled_from(HOSTNAMES), st.booleans(), st.sampled_from(["HTTP", "HTTPS"]))


@given(OF_GATEWAY, ENTRIES)
@example(Entry(GATEWAY, 80, ""), [Entry("s1", 443, "a.x.example", is_broken=True)])
@example(Entry(GATEWAY, 80, ""), [Entry("s1", 443, "*.example"), Entry("s2", 443, "a.x.example", is_broken=True)])
def test_a_request_goes_to_the_most_specific_listener_of_its_port_or_else_of_an_owner_without_that_port(
    first: Entry, rest: list[Entry]
) -> None:
    entries = [first, *(entry for entry in rest if entry[1:3] != first[1:3])]
    doors = _doors(entries)

    for port, door in DOORS.items():
        for host in HOSTS:
            assert _listener_at(doors.get(door), host, port, entries) == _expected(entries, port, host), (port, host)


@given(OF_GATEWAY, ENTRIES)
def test_listener_sets_take_no_host_that_they_do_not_name(first: Entry, rest: list[Entry]) -> None:
    entries = [first, *(entry for entry in rest if entry[1:3] != first[1:3])]
    own = [entry for entry in entries if entry.owner == GATEWAY]
    alone, doors = _doors(own), _doors(entries)

    for port, door in DOORS.items():
        for host in HOSTS:
            if not any(entry.fits(host) for entry in entries if entry.owner != GATEWAY):
                before = _listener_at(alone.get(door), host, port, entries)
                assert _listener_at(doors.get(door), host, port, entries) == before, (port, host)


@given(OF_GATEWAY, st.lists(ANY, max_size=6, unique_by=lambda entry: entry[:3]))
def test_the_proxy_takes_the_document_whatever_protocols_and_conflicts_there_are(
    first: Entry, rest: list[Entry]
) -> None:
    _doors([first, *(entry for entry in rest if entry[:3] != first[:3])])


def _doors(entries: Sequence[Entry]) -> dict[str, routing.Door]:
    """Raises DocumentError for a document that the proxy refuses."""
    of_owner = {owner: [entry.spec() for entry in entries if entry.owner == owner] for owner in (GATEWAY, "s1", "s2")}
    sets = [
        {
            "kind": "ListenerSet",
            "metadata": {"name": owner},
            "spec": {"parentRef": {"name": GATEWAY}, "listeners": listeners},
        }
        for owner, listeners in of_owner.items()
        if owner != GATEWAY and listeners
    ]
    spec = {"allowedListeners": {"namespaces": {"from": "Same"}}, "listeners": of_owner[GATEWAY]}
    gateway = {"kind": "Gateway", "metadata": {"name": GATEWAY}, "spec": spec}
    translation = translation_of(snapshot_of({"config": {"tunnelID": TUNNEL}, "objects": [gateway, *sets]}))
    made = document.decode(translation.documents["shared"].encode(1))
    return routing.compile_table(made).doors if made.listeners else {}


def _listener_at(door: routing.Door | None, host: str, port: int, entries: Sequence[Entry]) -> Entry | None:
    """None: nobody, or a wall."""
    found = door.listener_for(host.encode()) if door else None
    served = {entry.document_name: entry for entry in entries if not entry.is_broken}
    return served.get(found.name.removesuffix(f"@{port}")) if found else None


def _expected(entries: Sequence[Entry], port: int, host: str) -> Entry | None:
    fitting = [entry for entry in entries if entry.fits(host)]
    of_port = [entry for entry in fitting if entry.port == port]
    wanting = {entry.owner for entry in entries if entry.port == port}
    lent = [entry for entry in fitting if not entry.is_broken and not wanting & {entry.owner, GATEWAY}]
    served = [entry for entry in of_port if not entry.is_broken]
    return max(served or (() if of_port else lent), key=_specificity, default=None)


def _specificity(entry: Entry) -> tuple[bool, int]:
    return bool(entry.hostname) and "*" not in entry.hostname, len(entry.hostname)
