"""The request fields in which proxies describe clients, and in which nobody else is believed.

The only list of their names: `exchange.forwarding` says what becomes of each, and conditions see what it has made of
them (`sender`).
"""

from typing import Final

from proxy.heads import plain_name

FORWARDED_FOR: Final = b"x-forwarded-for"
FORWARDED: Final = b"forwarded"
REQUESTED: Final = (b"x-forwarded-proto", b"x-forwarded-host", b"x-forwarded-port")
"""What the client asked for."""
CERTIFICATES: Final = (b"client-cert", b"client-cert-chain")
IMPERSONAL: Final = (b"x-real-ip", b"true-client-ip")
PREFIXES: Final = (b"x-forwarded-", b"cf-")

_NAMES: Final = frozenset((FORWARDED_FOR, FORWARDED, *REQUESTED, *CERTIFICATES, *IMPERSONAL))


class ClientFields:
    """The names of these fields, and of the one with the request id. Other spellings (`plain_name`) belong to them."""

    __slots__ = ("request_id_name",)

    def __init__(self, request_id_name: bytes) -> None:
        self.request_id_name = request_id_name
        """In lower case."""

    def __contains__(self, name: bytes) -> bool:
        """`name` is in lower case."""
        plain = plain_name(name)
        return (
            plain in _NAMES
            or plain.startswith(PREFIXES)
            or name == self.request_id_name
            or plain == self.request_id_name
        )
