"""Loads certificates and keys with OpenSSL before a document is accepted: a check of the PEM text would find less.

Valid ones are remembered as long as the document has them, since loading a key takes about a millisecond.
"""

import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from daemonkit.logs import get_logger
from proxy.document import MAX_PROBLEMS, DocumentError, Listener, ListenerTLS, Problem, TLSPart

if TYPE_CHECKING:
    from proxy.tls.validity import Validity

log = get_logger(__name__)


class ApiCertificate:
    """The certificate of the config API. `validity` is None without TLS, or if it cannot be read."""

    def __init__(self) -> None:
        self.validity: Validity | None = None

    def use(self, certificate_der: bytes) -> None:
        """This certificate is presented from now on."""
        from proxy.tls.validity import validity

        try:
            self.validity = validity(certificate_der)
        except ValueError:  # OpenSSL has accepted it, so clients decide
            self.validity = None
            return
        if self.validity.end_s < time.time():
            expired_at = _date(self.validity.end_s)
            log.warning("certificate of the config API has expired, clients will refuse it", expired_at=expired_at)


class CertificateCheck:
    """Not thread-safe; the configuration's lock guards it."""

    def __init__(self) -> None:
        self._sound: set[TLSPart] = set()
        self._validities: dict[ListenerTLS, Validity] = {}

    def check(self, parts: Iterable[tuple[str, TLSPart]]) -> None:
        """Check all TLS parts of a document, each given with the path of its field.

        Raises DocumentError, with the path of each certificate, key or CA that cannot be used, and OSError.
        """
        problems: list[Problem] = []
        sound: set[TLSPart] = set()
        for path, tls in parts:
            if tls in sound:
                continue
            problem = None if tls in self._sound else _problem(path, tls)
            if problem is None:
                sound.add(tls)
            else:
                problems.append(problem)
        if problems:
            raise DocumentError(tuple(problems[:MAX_PROBLEMS]))
        self._sound = sound

    def validities(self, listeners: Iterable[Listener]) -> "dict[str, Validity]":
        """By listener name, the validity of the certificate that expires first, for listeners that passed `check`.
        Intermediate certificates do not count, since clients may know another chain."""
        known, self._validities = self._validities, {}
        found = {}
        for listener in listeners:
            if listener.tls:
                tls = listener.tls
                found[listener.name] = self._validities[tls] = known[tls] if tls in known else _validity(tls)
        return found


def tell_of_expired(validities: "Mapping[str, Validity]", told: "Mapping[str, Validity]") -> None:
    """Log expired certificates, given by listener name; `told` are those of the previous document.

    They are still served: only the owner knows which names have no other certificate, and whether clients check.
    """
    now_s = time.time()
    for listener, validity in validities.items():
        if validity.end_s < now_s and told.get(listener) != validity:
            expired_at = _date(validity.end_s)
            log.warning("certificate has expired, clients will refuse it", listener=listener, expired_at=expired_at)


def _date(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat()


def _validity(tls: ListenerTLS) -> "Validity":
    from proxy.tls.validity import validity_of_first

    return min((validity_of_first(pair.certificate) for pair in tls.certificates), key=lambda each: each.end_s)


def _problem(path: str, tls: TLSPart) -> Problem | None:
    # Imported here: a proxy without TLS does not need OpenSSL and the certificate parser, which take 10 MiB.
    from proxy.backend.tls import make_context
    from proxy.doors.tls import check
    from proxy.tls.contexts import UnusableTLS

    try:
        if isinstance(tls, ListenerTLS):
            check(tls)
        else:
            make_context(tls, ["http/1.1"])
    except UnusableTLS as error:
        return Problem(f"{path}.{error.place}", error.reason)
    return None
