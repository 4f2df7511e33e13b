"""Why connections and attempts to connect fail: for metrics, the log, and the choice of the next address."""

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
    """The edge server already has a connection with this index."""
    UNAUTHORIZED = "unauthorized"
    """The token is refused. We keep trying, as the tunnel may be repaired."""
    REFUSED = "refused"
    """The registration is refused for another reason, which the edge states."""
    EXCEPTION = "exception"
    """The edge could not handle the call."""
    MALFORMED = "malformed"
    """The edge sent something that cannot be understood."""
    LOST = "lost"
    """The connection or its control stream ended."""

    @property
    def is_of_address(self) -> bool:
        """The address is at fault, even if the connection was registered there before."""
        return self in _OF_ADDRESS

    @property
    def is_of_all(self) -> bool:
        """No other address will do better. After other causes one may, if the connection could not register here."""
        return self is FailureCause.UNAUTHORIZED


_OF_ADDRESS: Final = frozenset((FailureCause.DIAL, FailureCause.TLS, FailureCause.SILENT, FailureCause.DUPLICATE))
