"""Certificates and keys are tried before a document is accepted: OpenSSL says more than a look at the PEM text does.

What was found sound is remembered as long as the document has it, since loading a key takes about a millisecond.
"""

import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from daemonkit.logs import get_logger
from proxy.document import DocumentError, Listener, ListenerTLS, Problem, TLSPart
from proxy.document.problems import MAX_PROBLEMS

log = get_logger(__name__)


class ApiCertificate:
    """That of the config API: when it expires, in seconds since 1970; None without TLS."""

    def __init__(self) -> None:
        self.end_s: float | None = None

    def use(self, certificate_der: bytes) -> None:
        """It is presented from now on."""
        from proxy.tls.validity import end_s

        try:
            self.end_s = end_s(certificate_der)
        except ValueError:  # which is for clients to judge, OpenSSL takes it
            self.end_s = None
            return
        if self.end_s < time.time():
            expired_at = _date(self.end_s)
            log.warning("certificate of the config API has expired, clients will refuse it", expired_at=expired_at)


class CertificateCheck:
    """Not thread-safe; the configuration's lock guards it."""

    def __init__(self) -> None:
        self._sound: set[TLSPart] = set()
        self._ends_s: dict[ListenerTLS, float] = {}

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

    def ends_s(self, listeners: Iterable[Listener]) -> dict[str, float]:
        """When certificates of these listeners, which were found sound, expire: the first of each, by its name, in
        seconds since 1970. What follows a certificate in its chain does not count: clients may know another way."""
        known, self._ends_s = self._ends_s, {}
        ends_s = {}
        for listener in listeners:
            if listener.tls:
                tls = listener.tls
                ends_s[listener.name] = self._ends_s[tls] = known[tls] if tls in known else _end_s(tls)
        return ends_s


def tell_of_expired(ends_s: Mapping[str, float], told: Mapping[str, float]) -> None:
    """By the listener's name; `told` are those of the document before.

    They are served all the same: which of a listener's names have no other certificate, and whether clients look, only
    its owner knows.
    """
    now_s = time.time()
    for listener, end_s in ends_s.items():
        if end_s < now_s and told.get(listener) != end_s:
            log.warning("certificate has expired, clients will refuse it", listener=listener, expired_at=_date(end_s))


def _date(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat()


def _end_s(tls: ListenerTLS) -> float:
    from proxy.tls.validity import end_of_first_s

    return min(end_of_first_s(pair.certificate) for pair in tls.certificates)


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
