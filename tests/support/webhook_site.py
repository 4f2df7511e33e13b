"""The webhook app on a store in memory, with a WSGI client that calls it."""

import json
from collections.abc import Callable
from threading import Event
from typing import Any

from prometheus_client import CollectorRegistry
from werkzeug.test import Client, TestResponse

from dnswebhook.app import Limits, WebhookApp
from dnswebhook.domains import DomainFilter, ProtectedNames
from dnswebhook.errors import StoreError
from dnswebhook.journal import Journal
from dnswebhook.metrics import Metrics
from dnswebhook.model import Record
from dnswebhook.provider import Policy, Provider
from tests.support.memory_store import WAIT_S, MemoryStore

MEDIA_TYPE = "application/external.dns.webhook+json;version=1"
MAX_BODY_BYTES = 5_242_880
ROW = Record("1", "app.example.com", "A", "192.0.2.1", 300)
ENDPOINT = {"dnsName": "app.example.com", "targets": ["192.0.2.1"], "recordType": "A", "recordTTL": 300}
"""The endpoint that `ROW` is to external-dns."""
NEW = {"dnsName": "new.example.com", "targets": ["192.0.2.2"], "recordType": "A"}
OTHER = {"dnsName": "other.example.com", "targets": ["192.0.2.3"], "recordType": "A"}


class Site:
    """`store_errors` are the errors that the app reported."""

    def __init__(self, store: MemoryStore, *, call_deadline_s: float = WAIT_S, **policy: Any) -> None:
        self.store = store
        self.stop = Event()
        self.store_errors: list[StoreError] = []
        self.registry = CollectorRegistry()
        self.metrics = Metrics(self.registry)
        settings = {"domain_filter": DomainFilter(), "protected": ProtectedNames(), **policy}
        self.provider = Provider(store, Policy(**settings), self.metrics, Journal())
        self.client = self.client_with(call_deadline_s)

    def client_with(self, call_deadline_s: float) -> Client:
        limits = Limits(MAX_BODY_BYTES, call_deadline_s)
        return Client(WebhookApp(self.provider, limits, self.metrics, self.stop, self.store_errors.append))

    def get(self, path: str, accept: str | None = MEDIA_TYPE, **more: Any) -> TestResponse:
        return self.client.get(path, headers={"Accept": accept} if accept is not None else {}, **more)

    def post(self, path: str, body: Any, content_type: str | None = MEDIA_TYPE, **more: Any) -> TestResponse:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": content_type} if content_type is not None else {}
        return self.client.post(path, data=data, headers=headers, **more)

    def metric(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)


BuildSite = Callable[..., Site]
"""Takes rows and policy."""


def assert_error(response: TestResponse, status_code: int, category: str) -> str:
    """Check an error response, and return its message."""
    assert status_code == response.status_code, response.text
    assert "application/json" == response.headers["Content-Type"]
    body = json.loads(response.data)
    assert {"error", "message"} == set(body)
    assert category == body["error"]
    assert body["message"]
    return str(body["message"])
