"""Orders about the tunnel that arrive while the worker is stopping."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import msgspec
import pytest

from proxy.accesslog import AccessLogSettings
from proxy.accesslog.writer import AccessLogWriter
from proxy.loop import Loop
from proxy.stats import Stats
from proxy.tunnel.addresses import EdgeAddress
from proxy.tunnel.failures import FailureCause
from proxy.tunnel.orders import Dial, DialMeans, EdgeReport, Ended
from proxy.worker.dataplane import DataPlane
from tests.support.edge.authority import EdgeAuthority
from tests.support.edge.tunnels import new_tunnel


@pytest.fixture
def data_plane() -> Iterator[DataPlane]:
    loop, stats = Loop(), Stats()
    data_plane = DataPlane(loop, stats, AccessLogWriter(loop, stats, AccessLogSettings("off", 1.0)))
    yield data_plane
    data_plane.close()
    loop.close()


def test_a_worker_that_is_stopping_does_not_make_its_first_dial(data_plane: DataPlane) -> None:
    reports: list[EdgeReport] = []
    data_plane.drain(lambda: None)

    means = DialMeans(new_tunnel().token, bytes(16), EdgeAuthority.make().pem.decode())
    with socket.create_server(("127.0.0.1", 0)) as edge:
        order = Dial(7, 0, EdgeAddress(*edge.getsockname()), 0, True)
        data_plane.obey(order, memoryview(msgspec.msgpack.encode(means)), reports.append)
        edge.setblocking(False)
        with pytest.raises(BlockingIOError):
            edge.accept()

    assert reports == [Ended(7, FailureCause.LOST, "the worker is stopping", 0.0, 0.0)]
