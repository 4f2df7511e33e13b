"""The UniFi controller as one store, whichever flavour and API it has.

The API is chosen at the first call that needs it, and reviewed by each probe; a change (after a firmware upgrade) takes
effect at the next listing. Records carry the ids of the API that listed them, and the two APIs' ids look different, so
a write always goes to the API that its record came from.
"""

import re
import threading
import time
from collections.abc import Callable, Iterator

from daemonkit.logs import get_logger
from dnswebhook.deadline import Deadline
from dnswebhook.errors import CapabilitiesUnknown, StoreTimeout
from dnswebhook.model import Capabilities, Listing, Record, RecordSpec
from dnswebhook.stores.base import Finding
from dnswebhook.stores.observed import Observe
from dnswebhook.stores.unifi import check, integrationrows, v2rows
from dnswebhook.stores.unifi.address import Flavour, v2_path
from dnswebhook.stores.unifi.auto import Detector
from dnswebhook.stores.unifi.client import Client
from dnswebhook.stores.unifi.credentials import Credentials, KeyCredentials, SessionCredentials
from dnswebhook.stores.unifi.decision import Decision, DecisionFile, decision_of_settings
from dnswebhook.stores.unifi.integration import IntegrationStore
from dnswebhook.stores.unifi.replies import MethodAbsent
from dnswebhook.stores.unifi.retry import RetryPolicy
from dnswebhook.stores.unifi.settings import ApiChoice, UnifiSettings
from dnswebhook.stores.unifi.transport import Transport
from dnswebhook.stores.unifi.v2 import V2Store

log = get_logger(__name__)

_INTEGRATION_ID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_CAPABILITIES = {ApiChoice.V2: v2rows.CAPABILITIES, ApiChoice.INTEGRATION: integrationrows.CAPABILITIES}


Api = V2Store | IntegrationStore


class UnifiStore:
    """Thread-safe. Raises ValueError at construction if the CA file cannot be used."""

    def __init__(
        self,
        settings: UnifiSettings,
        observe: Observe,
        on_rate_limited: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`observe` is called after each list, create, update, delete, login and probe, with `ok` or the error's reason
        and the duration in seconds; `on_rate_limited` is called for each 429."""
        self._settings = settings
        self._observe = observe
        self._clock = clock
        self._transport = Transport(settings)
        self._retry = RetryPolicy(on_rate_limited)
        self._detector = Detector(settings, self._transport, self._retry, self._log_in)
        self._file = DecisionFile(settings)
        self._lock = threading.Lock()
        """Held while the controller is asked for its API: no call can go on without the result."""
        fixed = decision_of_settings(settings)
        self._decision = fixed or self._file.load()
        self._is_current = fixed is not None
        """Whether this process made the decision and nothing has cast doubt on it since."""
        self._pending: Decision | None = None
        self._apis: dict[tuple[Flavour, ApiChoice], Api] = {}
        self._apis_lock = threading.Lock()
        self._credentials: dict[Flavour, Credentials] = {}
        if settings.skip_tls_verify and settings.address.scheme == "https":
            log.warning("TLS certificates of the controller are not verified", remedy="set UNIFI_TLS_FINGERPRINT")

    def capabilities(self) -> Capabilities:
        if self._settings.api is not ApiChoice.AUTO:
            return _CAPABILITIES[self._settings.api]
        decision = self._decision
        if decision is None:
            raise CapabilitiesUnknown(
                f"{self._settings.address.base_url} has not been reached yet, so which API it has is unknown; "
                "UNIFI_API=v2 or UNIFI_API=integration decides without asking"
            )
        return _CAPABILITIES[decision.api]

    def list_records(self, deadline: Deadline) -> Listing:
        try:
            return self._api(deadline, may_switch=True).list_records(deadline)
        except MethodAbsent:
            self._doubt()
            raise

    def create(self, spec: RecordSpec, deadline: Deadline) -> Record:
        return self._api(deadline).create(spec, deadline)

    def update(self, record: Record, spec: RecordSpec, deadline: Deadline) -> Record:
        return self._api_of(record, deadline).update(record, spec, deadline)

    def delete(self, record: Record, deadline: Deadline) -> None:
        self._api_of(record, deadline).delete(record, deadline)

    def probe(self, deadline: Deadline) -> None:
        api = self._api(deadline)
        decision = self._decision
        if decision is not None and self._settings.api is ApiChoice.AUTO:
            verdict = self._detector.review(decision, deadline)
            self._pending = verdict if verdict.api is not decision.api else None
        api.probe(deadline)

    def check(self, deadline: Deadline) -> Iterator[Finding]:
        return check.findings(self._settings, self._detector, self._inspected, deadline)

    def close(self) -> None:
        for api in list(self._apis.values()):
            api.close()
        self._transport.close()

    def _inspected(self, deadline: Deadline) -> tuple[Decision, Api]:
        api = self._api(deadline)
        decision = self._decision
        assert decision is not None  # noqa: S101 - `_api` has just decided
        return decision, api

    def _api(self, deadline: Deadline, *, may_switch: bool = False) -> Api:
        decision = self._decision
        if decision is None or not self._is_current or (may_switch and self._pending is not None):
            decision = self._settled(deadline)
        return self._api_for(decision)

    def _settled(self, deadline: Deadline) -> Decision:
        if not self._lock.acquire(timeout=max(deadline.remaining_s, 0)):
            raise StoreTimeout("waiting for another thread to find out the controller's API took too long")
        try:
            decision = self._decision
            if decision is None or not self._is_current:
                decision = self._detector.detect(deadline)
            else:
                decision = self._pending or decision
            self._adopt(decision)
            return decision
        finally:
            self._lock.release()

    def _adopt(self, decision: Decision) -> None:
        if decision != self._decision or not self._is_current:
            flavour, version = decision.flavour.value, decision.version
            log.info("controller API chosen", api=decision.api.value, flavour=flavour, version=version)
        if decision != self._decision:
            self._file.save(decision)
        self._decision, self._pending, self._is_current = decision, None, True

    def _doubt(self) -> None:
        """Ask the controller again at the next call, unless the settings decide."""
        self._is_current = decision_of_settings(self._settings) is not None

    def _api_of(self, record: Record, deadline: Deadline) -> Api:
        current = self._api(deadline)
        wanted = IntegrationStore if _INTEGRATION_ID.fullmatch(record.id) else V2Store
        if isinstance(current, wanted):
            return current
        return next((api for api in list(self._apis.values()) if isinstance(api, wanted)), current)

    def _api_for(self, decision: Decision) -> Api:
        key = (decision.flavour, decision.api)
        with self._apis_lock:
            api = self._apis.get(key)
            if api is None:
                api = self._apis[key] = self._opened(decision)
            return api

    def _opened(self, decision: Decision) -> Api:
        client = Client(self._transport, self._credentials_for(decision.flavour), self._retry)
        if decision.api is ApiChoice.INTEGRATION:
            return IntegrationStore(client, self._settings.site, self._observe, self._clock)
        return V2Store(client, v2_path(decision.flavour, self._settings.site), self._observe, self._clock)

    def _log_in(self, flavour: Flavour, deadline: Deadline) -> None:
        self._credentials_for(flavour).ticket(deadline)

    def _credentials_for(self, flavour: Flavour) -> Credentials:
        found = self._credentials.get(flavour)
        if found is None:
            settings = self._settings
            if settings.api_key:
                found = KeyCredentials(settings.api_key)
            else:
                found = SessionCredentials(settings.user, settings.password, flavour, self._transport, self._observe)
            found = self._credentials.setdefault(flavour, found)
        return found
