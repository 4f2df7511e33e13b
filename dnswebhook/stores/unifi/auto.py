"""Detects a controller's flavour, and which of its APIs to use, by asking it.

With an API key, `GET /info` of the Integration API decides: version 10.1 and later have DNS policies, older versions do
not, and a web server's 404 means that the API is absent. Otherwise the v2 collection is tried at both flavours' paths;
the right one is where the Network application itself responds, even with 401. To those who are not logged in, a
controller may show a page instead, redirect them to one, or answer 401 or 403 without JSON. With user and
password, the right path is then the one whose login succeeds. Only such definite responses decide. A refused key, a 5xx
or a timeout is raised and decides nothing, since a restarting console starts its services one after another.
"""

import re
from collections.abc import Callable, Iterable

import msgspec

from daemonkit.causes import forget_frames
from dnswebhook.deadline import Deadline
from dnswebhook.errors import CredentialsRefused, StoreUnreachable
from dnswebhook.stores.unifi import replies
from dnswebhook.stores.unifi.address import INTEGRATION_PATH, Flavour, v2_path
from dnswebhook.stores.unifi.credentials import KeyCredentials
from dnswebhook.stores.unifi.decision import Decision
from dnswebhook.stores.unifi.retry import RetryPolicy
from dnswebhook.stores.unifi.settings import ApiChoice, UnifiSettings
from dnswebhook.stores.unifi.transport import Reply, Request, Transport

FIRST_INTEGRATION_VERSION = (10, 1)
_VERSION = re.compile(r"(\d{1,6})\.(\d{1,6})")


class _Info(msgspec.Struct, frozen=True, rename="camel"):
    application_version: str


_info_decoder = msgspec.json.Decoder(_Info)


class Detector:
    def __init__(
        self,
        settings: UnifiSettings,
        transport: Transport,
        retry: RetryPolicy,
        log_in: Callable[[Flavour, Deadline], object],
    ) -> None:
        """`log_in` opens a session, unless there is one; raises StoreError."""
        self._log_in = log_in
        self._settings = settings
        self._transport = transport
        self._retry = retry

    def detect(self, deadline: Deadline) -> Decision:
        """Raises StoreError if the controller gives no definite response."""
        flavour = self._settings.known_flavour
        if flavour is not Flavour.CLASSIC:
            version = self.version(deadline)
            if version is not None:
                return Decision(Flavour.OS, self._api_for(version), version)
        tried, closed = [], []
        for candidate in (flavour,) if flavour is not None else (Flavour.OS, Flavour.CLASSIC):
            reply = self._get(v2_path(candidate, self._settings.site), deadline)
            if replies.is_from_application(reply):
                return Decision(candidate, ApiChoice.V2)
            tried.append(replies.described(reply))
            if self._settings.user and (replies.is_page(reply) or reply.status_code in (401, 403)):
                closed.append(candidate)
        logged_in = self._first_to_log_in(closed, tried, deadline)
        if logged_in is not None:
            return Decision(logged_in, ApiChoice.V2)
        raise StoreUnreachable(
            f"no Network application with DNS records found at {self._settings.address.base_url}: {'; '.join(tried)}; "
            f"{replies.HINT_FLAVOUR}, or {replies.HINT_RESTARTING}"
        )

    def _first_to_log_in(self, candidates: Iterable[Flavour], tried: list[str], deadline: Deadline) -> Flavour | None:
        """Adds to `tried` what did not work; raises CredentialsRefused if one of these was a refusal."""
        refused = []
        for candidate in candidates:
            try:
                self._log_in(candidate, deadline)
            except CredentialsRefused as error:
                refused.append(str(error))
                forget_frames(error)
            except StoreUnreachable as error:
                tried.append(str(error))
                forget_frames(error)
            else:
                return candidate
        if refused:
            raise CredentialsRefused("; ".join(refused))
        return None

    def review(self, decision: Decision, deadline: Deadline) -> Decision:
        """The decision as it would be made now, for example after a firmware upgrade; usually one cheap call.

        A restarting console may respond with 404 to everything: the integration API is given up only if v2 responds.
        """
        if decision.flavour is Flavour.CLASSIC or not self._settings.api_key:
            return decision
        version = self.version(deadline)
        if version is not None:
            return Decision(Flavour.OS, self._api_for(version), version)
        if decision.api is ApiChoice.INTEGRATION:
            reply = self._get(v2_path(Flavour.OS, self._settings.site), deadline)
            if not replies.is_from_application(reply):
                return decision
        return Decision(Flavour.OS, ApiChoice.V2)

    def version(self, deadline: Deadline) -> str | None:
        """The application's version; None without an API or a key to ask for it."""
        if not self._settings.api_key:
            return None
        reply = self._get(f"{INTEGRATION_PATH}/info", deadline)
        if reply.is_success and replies.is_json(reply):
            return replies.decoded(reply, _info_decoder).application_version
        if reply.status_code in (404, 405) or reply.is_success or 300 <= reply.status_code < 400:
            return None
        failure = replies.failure_of(reply)
        raise failure if failure is not None else StoreUnreachable(replies.described(reply))

    def _api_for(self, version: str) -> ApiChoice:
        if self._settings.api is not ApiChoice.AUTO:
            return self._settings.api
        match = _VERSION.match(version)
        is_recent = match is not None and (int(match[1]), int(match[2])) >= FIRST_INTEGRATION_VERSION
        return ApiChoice.INTEGRATION if is_recent else ApiChoice.V2

    def _get(self, path: str, deadline: Deadline) -> Reply:
        headers = KeyCredentials(self._settings.api_key).headers if self._settings.api_key else {}
        request = Request("GET", path)
        return self._retry.send(request, lambda: self._transport.exchange(request, headers, deadline), deadline)
