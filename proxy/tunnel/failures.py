"""How an attempt to have a connection can end: for metrics, for the log, and for which address to dial next."""

from enum import StrEnum
from typing import Final


class FailureCause(StrEnum):
    DIAL = "dial"
    """No TCP connection."""
    TLS = "tls"
    """No TLS, or not with an edge that we trust."""
    SILENT = "silent"
    """The edge did not open its control stream, or did not answer the registration, in time."""
    DUPLICATE = "duplicate"
    """The edge server has a connection with this index already."""
    UNAUTHORIZED = "unauthorized"
    """The token is refused. People may repair the tunnel meanwhile, so trying goes on."""
    REFUSED = "refused"
    """The registration is refused for another reason, of which the edge tells."""
    EXCEPTION = "exception"
    """The edge could not deal with the call."""
    MALFORMED = "malformed"
    """What the edge said cannot be understood."""
    LOST = "lost"
    """The edge gave the connection or its control stream up."""

    @property
    def is_of_address(self) -> bool:
        """The address has failed the connection, whatever became of it there before."""
        return self in _OF_ADDRESS

    @property
    def is_of_all(self) -> bool:
        """No address will do better; for the others one may, where nothing could be registered."""
        return self is FailureCause.UNAUTHORIZED


_OF_ADDRESS: Final = frozenset((FailureCause.DIAL, FailureCause.TLS, FailureCause.SILENT, FailureCause.DUPLICATE))
