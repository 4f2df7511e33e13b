"""Certificates and keys are tried before a document is accepted: OpenSSL says more than a look at the PEM text does.

What was found sound is remembered as long as the document has it, since loading a key takes about a millisecond.
"""

from collections.abc import Iterable

from proxy.document import DocumentError, Listener, ListenerTLS, Problem, TLSPart
from proxy.document.problems import MAX_PROBLEMS


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
