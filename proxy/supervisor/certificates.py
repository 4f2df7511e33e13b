"""Certificates and keys are tried before a document is accepted: OpenSSL says more than a look at the PEM text does.

What was found sound is remembered as long as the document has it, since loading a key takes about a millisecond.
"""

from collections.abc import Iterator

from proxy import document
from proxy.document import Document, DocumentError, ListenerTLS, Problem


class CertificateCheck:
    """Not thread-safe; the configuration's lock guards it."""

    def __init__(self) -> None:
        self._sound: set[ListenerTLS | document.BackendTLS] = set()

    def check(self, config: Document) -> None:
        """Raises DocumentError with the place of each certificate, key or authority that cannot be used."""
        problems: list[Problem] = []
        sound: set[ListenerTLS | document.BackendTLS] = set()
        for place, tls in _places(config):
            if tls in sound:
                continue
            fault = None if tls in self._sound else _fault(tls)
            if fault is None:
                sound.add(tls)
            else:
                where, _, message = fault.partition(": ")
                problems.append(Problem(f"{place}.{where}", message))
        if problems:
            raise DocumentError(tuple(problems))
        self._sound = sound


def _places(config: Document) -> Iterator[tuple[str, ListenerTLS | document.BackendTLS]]:
    for index, listener in enumerate(config.listeners):
        if listener.tls:
            yield f"listeners[{index}].tls", listener.tls
    for index, backend in enumerate(config.backends):
        if backend.tls:
            yield f"backends[{index}].tls", backend.tls
    for index, route in enumerate(config.routes):
        for number, rule in enumerate(route.all_rules):
            for place, ref in enumerate(rule.backends):
                if ref.tls:
                    at = f"rules[{number}].backends[{place}]" if route.rules else f"backends[{place}]"
                    yield f"routes[{index}].{at}.tls", ref.tls


def _fault(tls: ListenerTLS | document.BackendTLS) -> str | None:
    """The field in `tls`, a colon, and what is wrong with it."""
    # Here, not above: OpenSSL and the certificate parser are 10 MiB that a proxy without TLS does not need.
    from proxy.backend.tls import make_context
    from proxy.doors.tls import UnusableTLS, check

    try:
        if isinstance(tls, ListenerTLS):
            check(tls)
        else:
            make_context(tls, ["http/1.1"])
    except (UnusableTLS, ValueError) as error:
        return str(error).removeprefix("tls.")
    return None
