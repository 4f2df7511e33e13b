"""The simulated controller as tests use it: one object to start, fill, control and inspect it.

    with Controller() as controller:
        controller.add_row("app.example.com", "A", "192.0.2.10")
        requests.get(controller.v2_url, headers={"X-API-KEY": controller.api_key})

Methods may be called from any thread. Leaving the block ends every connection and thread. Site arguments default to the
first site.
"""

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from tests.support.controller.admin import AdminApi
from tests.support.controller.desk import Desk, Gate
from tests.support.controller.faults import ANY, Effect, Fault, FaultBoard, Scope
from tests.support.controller.gatekeeper import Gatekeeper
from tests.support.controller.httpserver import HttpServer
from tests.support.controller.ledger import Ledger
from tests.support.controller.policyapi import PolicyApi
from tests.support.controller.quirks import Quirks
from tests.support.controller.resolver import Resolver
from tests.support.controller.routes import Flavour, Router
from tests.support.controller.rows import Api, Draft, Origin, Row
from tests.support.controller.sessions import Sessions
from tests.support.controller.sites import Site, site_uuid
from tests.support.controller.store import RecordStore
from tests.support.controller.v2api import V2Api

if TYPE_CHECKING:
    from tests.support.controller.tls import Certificate

API_KEY = "simulated-api-key"
USERNAME = "dns"
PASSWORD = "simulated-password"
CERTIFICATE_NAMES = ("127.0.0.1", "localhost")


class Controller:
    """One appliance with its sites; see the module docstring."""

    def __init__(
        self,
        *,
        flavour: Flavour | str = Flavour.UNIFI_OS,
        version: str = "10.4.57",
        sites: Iterable[str] = ("default",),
        api_key: str = API_KEY,
        username: str = USERNAME,
        password: str = PASSWORD,
        host: str = "127.0.0.1",
        port: int = 0,
        uses_tls: bool = False,
        certificate_names: tuple[str, ...] = CERTIFICATE_NAMES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` returns seconds, for session expiry, the login limiter and gaps."""
        self.flavour = Flavour(flavour)
        self.version = version
        self.api_key = api_key
        self.username = username
        self.password = password
        self.quirks = Quirks()
        self.sessions = Sessions(clock, {username: password}, {api_key})
        self.calls = Ledger()
        self.faults = FaultBoard()
        self.sites: dict[str, Site] = {
            reference: Site(reference, site_uuid(number), reference.title(), RecordStore(clock, self.quirks))
            for number, reference in enumerate(sites)
        }
        self._main_site = next(iter(self.sites))
        self._gate = Gate()
        self._resources = contextlib.ExitStack()
        self._resources.callback(self._gate.close)
        self.certificate = self._make_certificate(certificate_names) if uses_tls else None
        self._host = host
        self._desk = Desk(
            Router(self.flavour, version),
            Gatekeeper(self.sessions, self.quirks, self.flavour, version),
            self.sites,
            V2Api(self.quirks),
            PolicyApi(version, self.quirks),
            self.faults,
            self.calls,
            self._gate,
            AdminApi(self).answer,
        )
        self._server = HttpServer(self._desk.answer, host, port, self.certificate.context if self.certificate else None)

    # Life cycle

    def start(self) -> None:
        """Listen; after `stop`, on the same port again."""
        self._server.start()

    def stop(self) -> None:
        """Like switching the console off: connections end, rows and sessions stay (see `expire_sessions`)."""
        self._server.stop()

    def close(self) -> None:
        self._server.close()
        self._resources.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Addresses

    @property
    def port(self) -> int:
        return self._server.port

    @property
    def url(self) -> str:
        """Scheme, host and port, as an operator would configure it."""
        return f"{'https' if self.certificate else 'http'}://{self._host}:{self.port}"

    @property
    def network_url(self) -> str:
        """The URL below which the network application is served."""
        return self.url + ("/proxy/network" if self.flavour is Flavour.UNIFI_OS else "")

    @property
    def v2_url(self) -> str:
        """The v2 collection of the first site."""
        return f"{self.network_url}/v2/api/site/{self._main_site}/static-dns"

    @property
    def integration_url(self) -> str:
        return f"{self.network_url}/integration/v1"

    @property
    def policies_url(self) -> str:
        """The integration collection of the first site."""
        return f"{self.integration_url}/sites/{self.sites[self._main_site].uuid}/dns/policies"

    @property
    def login_url(self) -> str:
        return self.url + ("/api/auth/login" if self.flavour is Flavour.UNIFI_OS else "/api/login")

    @property
    def ca_pem_path(self) -> Path:
        return self._certificate.ca_pem_path

    @property
    def fingerprint_sha256(self) -> str:
        """SHA-256 of the server certificate, lower-case hexadecimal without colons."""
        return self._certificate.fingerprint_sha256

    # Rows

    def add_row(
        self,
        key: str,
        type: str,
        value: str,
        ttl: int = 0,
        enabled: bool = True,
        origin: Origin | str = Origin.USER_DEFINED,
        made_by: Api | str = Api.V2,
    ) -> Row:
        """Store a row verbatim, past every rule and counter."""
        return self.add_rows((Draft(key, type, value, ttl, enabled),), origin, made_by)[0]

    def add_rows(
        self,
        drafts: Iterable[Draft],
        origin: Origin | str = Origin.USER_DEFINED,
        made_by: Api | str = Api.V2,
        site: str | None = None,
    ) -> list[Row]:
        return self._store(site).preset(drafts, Origin(origin), Api(made_by))

    def rows(self, site: str | None = None) -> list[Row]:
        """All rows, oldest first, whatever their origin."""
        return list(self._store(site).rows())

    def clear_rows(self, site: str | None = None) -> None:
        self._store(site).clear()

    # Faults

    def fault(
        self,
        effect: Effect,
        on: str = ANY,
        *,
        api: str = ANY,
        name: str = "*",
        nth: int = 1,
        count: int | None = None,
        predicate: Callable[[str], bool] | None = None,
    ) -> Fault:
        """Activate a fault; `faults.Scope` explains the scope, `predicate` is called with the name of a write."""
        return self.faults.add(effect, Scope(on=on, api=api, name=name, nth=nth, count=count), predicate)

    def release_hangs(self) -> None:
        """Let all currently hanging calls continue."""
        self._gate.open()

    def expire_sessions(self) -> None:
        self.sessions.expire_all()

    @property
    def latency_s(self) -> float:
        return self._desk.latency_s

    @latency_s.setter
    def latency_s(self, latency_s: float) -> None:
        self._desk.latency_s = latency_s

    # Findings, over all sites

    @property
    def resolver_reloads(self) -> int:
        """How many writes were committed."""
        return sum(resolver.reloads for resolver in self._resolvers())

    @property
    def resolver_breakages(self) -> list[str]:
        return [breakage for resolver in self._resolvers() for breakage in resolver.breakages]

    @property
    def resolver_is_broken(self) -> bool:
        return bool(self.resolver_breakages)

    @property
    def max_gap_s(self) -> float:
        """The longest time that a name was without any row before it got one again."""
        return max((gap.length_s for resolver in self._resolvers() for gap in resolver.by_name.gaps), default=0.0)

    @property
    def max_record_set_gap_s(self) -> float:
        """The same for one type of a name."""
        return max((gap.length_s for resolver in self._resolvers() for gap in resolver.by_record_set.gaps), default=0.0)

    @property
    def names_with_gaps(self) -> set[str]:
        """Names that lost their last enabled row and got one again later."""
        return {gap.who for resolver in self._resolvers() for gap in resolver.by_name.gaps}

    @property
    def record_sets_with_gaps(self) -> set[str]:
        """`name type` of record sets that lost their last enabled row and got one again later."""
        return {gap.who for resolver in self._resolvers() for gap in resolver.by_record_set.gaps}

    @property
    def names_ever_empty(self) -> set[str]:
        """Names that lost their last enabled row at some time, permanently or not."""
        return {name for resolver in self._resolvers() for name in resolver.by_name.ever_empty.copy()}

    def reset_findings(self) -> None:
        """Restart counting: calls, reloads, breakages, gaps. Rows, faults and sessions stay."""
        self.calls.reset()
        for site in self.sites.values():
            site.store.forget_history()

    def _resolvers(self) -> list[Resolver]:
        return [site.store.resolver for site in self.sites.values()]

    def _store(self, site: str | None) -> RecordStore:
        return self.sites[site or self._main_site].store

    @property
    def _certificate(self) -> "Certificate":
        if self.certificate is None:
            raise RuntimeError("the simulator runs without TLS; want Controller(uses_tls=True)")
        return self.certificate

    def _make_certificate(self, names: tuple[str, ...]) -> "Certificate":
        # Imported here, so that the demo, which serves plain HTTP, needs no development package.
        from tests.support.controller.tls import Certificate

        directory = self._resources.enter_context(tempfile.TemporaryDirectory(prefix="controller-"))
        return Certificate(Path(directory), names)
