"""What can go wrong on an HTTP/1.1 connection, by who broke the contract.

`LocalProtocolError` is our caller's mistake and leaves the method that was called wrongly. `RemoteProtocolError` is the
peer's; it carries the status code to answer with, is raised and caught inside the codec, and callers see it as a
`ConnectionTerminated` event: after it nothing on the connection can be told apart any more.
"""

from typing import Final

NOT_HTTP: Final = 0
"""In place of a status code: the peer speaks something else, and would take an answer for something else too. A
malformed preface of HTTP/2 is such a thing (RFC 9113, 3.4)."""

FIELDS_TOO_LARGE: Final = 431
"""A head or trailers over a limit of ours; a response with this flaw is answered 502, as with all others."""


class ProtocolError(Exception):
    """Base of what this codec raises."""


class LocalProtocolError(ProtocolError):
    """Our caller asked for something that HTTP/1.1 or the state of the exchange forbids; nothing was sent."""


class RemoteProtocolError(ProtocolError):
    """The peer broke the protocol, or passed a limit of ours. `reason` never holds a field's value."""

    def __init__(self, status_code: int, reason: str) -> None:
        super().__init__(reason)
        self.status_code = status_code
        self.reason = reason
