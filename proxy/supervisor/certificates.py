"""Certificates and keys are tried before a document is accepted: OpenSSL says more than a look at the PEM text does.

What was found sound is remembered as long as the document has it, since loading a key takes about a millisecond.
"""

import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from daemonkit.logs import get_logger
from proxy.document import DocumentError, Listener, ListenerTLS, Problem, TLSPart
from proxy.document.problems import MAX_PROBLEMS

if TYPE_CHECKING:
    from proxy.tls.validity import Validity

log = get_logger(__name__)


class ApiCertificate:
    """That of the config API: how long it is valid; None without TLS."""

    def __init__(self) -> None:
        self.validity: Validity | None = None

    def use(self, certificate_der: bytes) -> None:
        """It is presented from now on."""
        from proxy.tls.validity import validity

        try:
            self.validity = validity(certificate_der)
        except ValueError:  # which is for clients to judge, OpenSSL takes it
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
        """All parts of a document, each with the path of its field.

        Raises DocumentError with the place of each certificate, key or authority that cannot be used; OSError.
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
        """How long certificates of these listeners, which were found sound, are valid: of each the one that expires
        first, by its name. What follows a certificate in its chain does not count: clients may know another way."""
        known, self._validities = self._validities, {}
        found = {}
        for listener in listeners:
            if listener.tls:
                tls = listener.tls
                found[listener.name] = self._validities[tls] = known[tls] if tls in known else _validity(tls)
        return found


def tell_of_expired(validities: "Mapping[str, Validity]", told: "Mapping[str, Validity]") -> None:
    """By the listener's name; `told` are those of the document before.

    They are served all the same: which of a listener's names have no other certificate, and whether clients look, only
    its owner knows.
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
    # Here, not above: OpenSSL and the certificate parser are 10 MiB that a proxy without TLS does not need.
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
