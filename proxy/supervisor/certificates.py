"""Certificates and keys are tried before a document is accepted: OpenSSL says more than a look at the PEM text does.

What was found sound is remembered as long as the document has it, since loading a key takes about a millisecond.
"""

from collections.abc import Iterable

from proxy.document import DocumentError, ListenerTLS, Problem, TLSPart
from proxy.document.problems import MAX_PROBLEMS


class CertificateCheck:
    """Not thread-safe; the configuration's lock guards it."""

    def __init__(self) -> None:
        self._sound: set[TLSPart] = set()

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
