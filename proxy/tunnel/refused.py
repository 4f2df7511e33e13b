"""The exchange of a stream that was refused at once: it ignores whatever the client still sends."""

from typing import Final

from proxy.heads import Fields


class Refused:
    """A `ClientExchange`."""

    def on_request_data(self, data: bytes | memoryview, end_stream: bool) -> None: ...
    def on_request_trailers(self, fields: Fields) -> None: ...
    def on_client_writable(self) -> None: ...
    def on_client_gone(self, reason: str) -> None: ...


REFUSED: Final = Refused()
