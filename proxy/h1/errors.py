"""What can go wrong on an HTTP/1.1 connection, by who broke the contract.

`LocalProtocolError` is our caller's mistake, raised by the method that was called wrongly. `RemoteProtocolError` is the
peer's: it carries the status code to answer with and is caught inside the codec. Callers see a `ConnectionTerminated`
event instead: from then on nobody can tell where messages on the connection begin and end.
"""

from typing import Final

NOT_HTTP: Final = 0
"""In place of a status code: the peer speaks another protocol, and would misread an answer. A malformed HTTP/2 preface
is such a case (RFC 9113, 3.4)."""

FIELDS_TOO_LARGE: Final = 431
"""A head or trailers over a limit of ours. A response with this flaw is answered 502, as with any other."""


class ProtocolError(Exception):
    """Base of all errors that this codec raises."""


class LocalProtocolError(ProtocolError):
    """Our caller asked for something that HTTP/1.1 or the state of the exchange forbids; nothing was sent."""


class RemoteProtocolError(ProtocolError):
    """The peer broke the protocol, or exceeded a limit of ours. `reason` never holds a field's value."""

    def __init__(self, status_code: int, reason: str) -> None:
        super().__init__(reason)
        self.status_code = status_code
        self.reason = reason
