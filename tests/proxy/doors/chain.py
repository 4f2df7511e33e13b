"""Doors with the real exchange and real pools behind them; the backend is an echo behind doors of another loop."""

import contextlib
import random
import socket
import time
from collections.abc import Iterator
from typing import Any

from proxy.backend.pools import Pools
from proxy.doors.h2connection import H2Connection
from proxy.exchange.exchange import Exchange
from proxy.exchange.services import Services
from proxy.routing import socket_door
from tests.proxy.doors.rig import Rig, listening_socket, plain, port_of, table_of

PROTOCOLS = ["http", "h2c"]
"""Of backends."""
IDLE_S = 20
UNTIL_A_LOOK_S = 5
"""Each look that finds progress gives half of that, and two without any between are an end. So after such a leap the
next one is at least as much real time away, in which some progress has to be made."""
LEAPS = 14
"""Together far more than a side may be idle."""


class Proxy(Rig):
    """Routes everything to one backend."""

    def __init__(self, backend_port: int, protocol: str) -> None:
        super().__init__(limits={"streamIdleTimeout": f"{IDLE_S}s"})
        self.records: list[Any] = []
        self.pools = Pools(self.loop, self.stats)
        self.real = Services(
            loop=self.loop,
            pools=self.pools,
            stats=self.stats,
            access_log=self.records.append,
            draw=random.Random(1).random,
            wall_clock_s=time.time,
        )
        self.doors = type(self.doors)(self.loop, self.real.begin, self.stats, self.pools.forget_client)
        self._backends = [{"address": f"127.0.0.1:{backend_port}", "protocol": protocol}]

    def open(self, **rule: Any) -> "Proxy":
        """`rule`: further members of the one rule that there is; one that responds has no backends."""
        if "respond" not in rule:
            rule["backends"] = self._backends
        sock = listening_socket()
        self.port = port_of(sock)
        self._serve(rule, sockets={socket_door("127.0.0.1", self.port): sock})
        return self

    def serve(self, *rules: dict[str, Any], **settings: Any) -> None:
        """From now on, with other settings of the document. Connections last."""
        self._serve(*rules, sockets={}, **settings)

    def _serve(self, *rules: dict[str, Any], sockets: dict[str, socket.socket], **settings: Any) -> None:
        table = table_of(plain(self.port), routes=[{"rules": rules}], **{**self._settings, **settings})

        def use() -> None:
            self.real.use(table)
            self.pools.use(table)
            self.doors.prepare(table, sockets)()

        self.call(use)


def streams_with_data(connection: H2Connection) -> list[int]:
    """Those with data for the client that waits: for its turn, or, once that came, for the socket."""
    return [
        stream.stream_id
        for stream in connection._streams.values()
        if isinstance(stream.exchange, Exchange) and stream.progress_of(stream.exchange._stream) is not None
    ]


Chain = tuple[Proxy, Rig]


@contextlib.contextmanager
def chain_over(protocol: str) -> Iterator[Chain]:
    with Rig() as backend, Proxy(backend.open_plain().port, protocol) as proxy:
        yield proxy.open(), backend
        proxy.call(proxy.pools.close)
