"""Carries the control stream on its HTTP/2 stream: `ControlStream` reads the request body, and its output is sent as
response body."""

from collections.abc import Callable

from proxy.exchange.client import ClientStream
from proxy.exchange.relay import NOBODY
from proxy.heads import Fields
from proxy.tunnel.controlevents import ControlEvent
from proxy.tunnel.controlstream import ControlStream, State
from proxy.tunnel.registration import Registration
from proxy.tunnel.remoteconfig import LOCAL_CONFIGURATION
from proxy.tunnel.responses import CONTROL_HEAD


class Control:
    """A `ClientExchange`. `on_event` gets the protocol's events; `on_gone` gets the reason if the stream is lost."""

    def __init__(
        self,
        stream: ClientStream,
        registration: Registration,
        on_event: Callable[[ControlEvent], None],
        on_gone: Callable[[str], None],
    ) -> None:
        self._stream = stream
        self._protocol = ControlStream(registration)
        self._on_event = on_event
        self._on_gone = on_gone
        self._unsent = b""
        self._is_ending = False
        self._is_gone = False

    @property
    def is_registered(self) -> bool:
        return self._protocol.state is State.REGISTERED

    @property
    def has_ended(self) -> bool:
        """Whether the stream has ended."""
        return self._is_gone

    # -- what we say -------------------------------------------------------------------------------------------------

    def register(self) -> None:
        self._stream.send_headers(CONTROL_HEAD, False)
        self._protocol.register()
        self._say()

    def describe(self) -> None:
        """Tell a tunnel that is not remotely managed what this connector serves."""
        self._protocol.update_local_configuration(LOCAL_CONFIGURATION)
        self._say()

    def unregister(self) -> None:
        self._protocol.unregister()
        self._say()

    def close(self) -> None:
        """Send the protocol's last messages and end the stream."""
        self._protocol.close()
        self._is_ending = True
        self._say()

    def _say(self) -> None:
        self._unsent += self._protocol.data_to_send()
        if self._is_gone:
            return
        if self._unsent:
            taken_bytes = self._stream.send_data(self._unsent, self._is_ending, NOBODY)
            self._unsent = self._unsent[taken_bytes:]
            self._is_gone = self._is_ending and not self._unsent

    # -- what the edge says ------------------------------------------------------------------------------------------

    def on_request_data(self, data: bytes | memoryview, end_stream: bool) -> None:
        self._stream.release(len(data))
        events = self._protocol.receive(data)
        if end_stream:
            events += self._protocol.receive_end()
        self._say()
        for event in events:
            self._on_event(event)

    def on_request_trailers(self, fields: Fields) -> None:  # noqa: ARG002 - the end is what counts
        for event in self._protocol.receive_end():
            self._on_event(event)

    def on_client_writable(self) -> None:
        self._say()

    def on_client_gone(self, reason: str) -> None:
        self._is_gone = True
        self._protocol.lose()
        self._on_gone(reason)
