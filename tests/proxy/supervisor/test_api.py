"""The config API over WSGI."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from daemonkit.ops import OpsApp
from proxy.supervisor.api import ConfigApi
from proxy.supervisor.configuration import Configuration
from proxy.supervisor.fleet import Fleet
from proxy.supervisor.sockets import ListeningSockets
from tests.support.lettinggo import lets_go


@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize(
    ("path", "method", "body"),
    [
        ("/config", "GET", b""),
        ("/config", "PUT", b'{"routes": 1}'),
        ("/config", "DELETE", b""),
        ("/readyz", "GET", b""),
    ],
)
def test_a_request_leaves_nothing_for_the_garbage_collector(path: str, method: str, body: bytes, is_open: bool) -> None:
    api = ConfigApi(
        Configuration(Fleet([], {}), ListeningSockets(0), None),
        OpsApp(lambda: None, lambda: None, CollectorRegistry()),
        token=None,
        is_open=is_open,
        max_document_bytes=1000,
        is_stopping=lambda: False,
    )
    assert lets_go(api, path, method, body)
