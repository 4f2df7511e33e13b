"""`dnswebhook check` for a UniFi controller: everything between us and the rows, step by step, for a person.

A failed step is the last one, because later steps would only repeat its failure in other words. Nothing is written, so
permission to write is reported only as far as it can be known.
"""

import ssl
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Protocol

from dnswebhook.deadline import Deadline
from dnswebhook.errors import CredentialsRefused, RateLimited, StoreError, StoreRestarting, StoreTimeout
from dnswebhook.model import Listing, Origin
from dnswebhook.stores.base import Finding, Grade
from dnswebhook.stores.unifi import replies, sockets, tls
from dnswebhook.stores.unifi.auto import Detector
from dnswebhook.stores.unifi.decision import Decision
from dnswebhook.stores.unifi.settings import ApiChoice, UnifiSettings

_BUSY = (RateLimited, StoreRestarting, StoreTimeout)
_HINT_USER = (
    "check UNIFI_USER and UNIFI_PASS: want a local user without a second factor, who is an administrator of the site"
)
_HINT_BUSY = "the controller is busy, or may be restarting: wait some minutes, then check again"


class Inspectable(Protocol):
    def list_records(self, deadline: Deadline) -> Listing: ...

    def site_names(self, deadline: Deadline) -> list[str]:
        """The existing sites; empty if the API cannot list them."""


Connect = Callable[[Deadline], tuple[Decision, Inspectable]]
"""The API in use, and the decision that led to it; raises StoreError."""


def findings(settings: UnifiSettings, detector: Detector, connect: Connect, deadline: Deadline) -> Iterator[Finding]:
    """Raises nothing."""
    walk = _Walk(settings, detector, connect, deadline)
    for step in (walk.address, walk.connection, walk.certificate, walk.api, walk.rows, walk.writing):
        for finding in step():
            yield finding
            if finding.grade is Grade.FAILED:
                return


class _Walk:
    def __init__(self, settings: UnifiSettings, detector: Detector, connect: Connect, deadline: Deadline) -> None:
        self._settings = settings
        self._address = settings.address
        self._detector = detector
        self._connect = connect
        self._deadline = deadline
        self._api: Inspectable | None = None

    @property
    def _timeout_s(self) -> float:
        return max(min(self._settings.request_timeout_s, self._deadline.remaining_s), 0.001)

    @property
    def _credentials_remedy(self) -> str:
        return replies.HINT_KEY if self._settings.api_key else _HINT_USER

    def address(self) -> Iterator[Finding]:
        detail = f"{self._address.base_url} (host {self._address.host}, port {self._address.port})"
        yield Finding("address", Grade.OK, detail)

    def connection(self) -> Iterator[Finding]:
        try:
            with sockets.connect(self._address.host, self._address.port, self._timeout_s) as sock:
                peer = sock.getpeername()[0]
        except OSError as error:
            yield Finding(
                "connection",
                Grade.FAILED,
                f"cannot connect to {self._address.host} port {self._address.port}: {error}",
                "check UNIFI_HOST (name, port) and that the controller is up; consoles use port 443, the "
                "self-hosted application 8443, UniFi OS Server 11443",
            )
            return
        yield Finding("connection", Grade.OK, f"connected to {peer} port {self._address.port}")

    def certificate(self) -> Iterator[Finding]:
        if self._address.scheme == "http":
            remedy = "use https:// in UNIFI_HOST"
            yield Finding("TLS", Grade.WARNING, "plain http: credentials travel unencrypted", remedy)
            return
        try:
            presented = tls.presented_certificate(self._address, self._timeout_s)
        except (OSError, ValueError) as error:
            remedy = "check that this port speaks https"
            yield Finding("TLS", Grade.FAILED, f"no TLS handshake: {error}", remedy)
            return
        yield self._verdict(presented)

    def _verdict(self, presented: tls.PresentedCertificate) -> Finding:
        seen = (
            f"SHA-256 {presented.fingerprint}, issued by {presented.issuer}, "
            f"valid until {presented.not_after:%Y-%m-%d %H:%M} UTC"
        )
        if self._settings.skip_tls_verify:
            remedy = "set UNIFI_TLS_FINGERPRINT to the fingerprint shown, and remove UNIFI_SKIP_TLS_VERIFY"
            return Finding("TLS", Grade.WARNING, f"not verified; {seen}", remedy)
        if self._settings.tls_fingerprint:
            if presented.has_fingerprint(self._settings.tls_fingerprint):
                return Finding("TLS", Grade.OK, f"the pinned certificate; {seen}")
            remedy = "if the controller's certificate was replaced, set UNIFI_TLS_FINGERPRINT to the new fingerprint"
            return Finding("TLS", Grade.FAILED, f"not the pinned certificate; {seen}", remedy)
        failure = self._verification_failure()
        if failure:
            expired = "the certificate has expired: renew it, or " if presented.has_expired else ""
            remedy = f"{expired}set UNIFI_TLS_FINGERPRINT to the fingerprint shown, or UNIFI_CA_CERT to its authority"
            return Finding("TLS", Grade.FAILED, f"not accepted ({failure}); {seen}", remedy)
        return Finding("TLS", Grade.OK, f"verified; {seen}")

    def _verification_failure(self) -> str:
        """Empty if the certificate is accepted."""
        try:
            with sockets.connect(self._address.host, self._address.port, self._timeout_s) as sock:
                tls.context_for(self._settings).wrap_socket(sock, server_hostname=self._address.tls_name).close()
        except ssl.SSLCertVerificationError as error:
            return error.verify_message or str(error)
        except (OSError, ValueError) as error:
            return str(error)
        return ""

    def api(self) -> Iterator[Finding]:
        """Flavour, credentials, version, and the API that follows from them."""
        try:
            decision, self._api = self._connect(self._deadline)
            version = decision.version or self._detector.version(self._deadline)
        except CredentialsRefused as error:
            yield Finding("credentials", Grade.FAILED, str(error), self._credentials_remedy)
            return
        except _BUSY as error:
            yield Finding("controller", Grade.FAILED, str(error), _HINT_BUSY)
            return
        except StoreError as error:
            yield Finding("controller", Grade.FAILED, str(error), replies.HINT_FLAVOUR)
            return
        yield Finding("flavour", Grade.OK, f"{decision.flavour.value}")
        yield Finding(
            "version", Grade.OK, f"Network application {version}" if version else "not reported by this controller"
        )
        chosen = "chosen automatically" if self._settings.api is ApiChoice.AUTO else "set by UNIFI_API"
        yield Finding("API", Grade.OK, f"{decision.api.value}, {chosen}")

    def rows(self) -> Iterator[Finding]:
        """Credentials and site, tested by a listing."""
        assert self._api is not None  # noqa: S101 - the step before ends the walk otherwise
        try:
            listing = self._api.list_records(self._deadline)
        except CredentialsRefused as error:
            yield Finding("credentials", Grade.FAILED, str(error), self._credentials_remedy)
            return
        except replies.MethodAbsent as error:
            yield Finding("path", Grade.FAILED, str(error), replies.HINT_FLAVOUR)
            return
        except _BUSY as error:
            yield Finding("controller", Grade.FAILED, str(error), _HINT_BUSY)
            return
        except StoreError as error:
            yield Finding("site", Grade.FAILED, f"site {self._settings.site!r}: {error}", self._site_remedy())
            return
        kind = "API key" if self._settings.api_key else "user and password"
        yield Finding("credentials", Grade.OK, f"{kind} accepted for reading")
        yield Finding("site", Grade.OK, f"{self._settings.site}")
        counts = Counter(record.type for record in listing.records)
        by_type = ", ".join(f"{count} {record_type}" for record_type, count in sorted(counts.items())) or "none"
        foreign = sum(record.origin is not Origin.USER_DEFINED for record in listing.records)
        disabled = sum(not record.is_enabled for record in listing.records)
        detail = f"{len(listing.records)} in all ({by_type}); {disabled} disabled, {foreign} never written by us"
        yield Finding("records", Grade.OK, detail)
        if ambiguous := sum(record.origin is Origin.AMBIGUOUS for record in listing.records):
            detail = f"{ambiguous} rows share their ids with others, so they can be neither changed nor removed"
            remedy = "set UNIFI_API=v2, which may give each an id of its own, or delete them in the controller's UI"
            yield Finding("row ids", Grade.WARNING, detail, remedy)

    def _site_remedy(self) -> str:
        names: list[str] = []
        try:
            if self._api is not None:
                names = self._api.site_names(self._deadline)
        except StoreError:
            pass
        if not names:
            return f"set UNIFI_SITE to the internal name of a site ({replies.SITE_PLACE})"
        known = ", ".join(names[:20])
        return (
            f"set UNIFI_SITE to the internal name of a site (`default` for the first one); the controller has: {known}"
        )

    def writing(self) -> Iterator[Finding]:
        yield Finding(
            "writing",
            Grade.WARNING,
            "not tried, since this command writes nothing; the controller does not tell the role of a key or user",
            "make sure that the key or user belongs to an administrator of this site, not to a viewer",
        )
