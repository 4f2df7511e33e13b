"""A client of the daemon's APIs with one method per operation; made by tools/generate.py, do not edit.

A method sends exactly what it is given and reads no meaning into the answer: `Answer.value()` decodes a body of the
kind that the operation promises for success, `Answer.problem()` an error body. `accept=None` sends no Accept header.
"""

from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar, cast

import msgspec
import requests

from dnswebhook.openapi.generated import webhook

T = TypeVar("T")


@dataclass(frozen=True)
class Answer(Generic[T]):
    """What came back: the raw parts, and how to decode them."""

    status_code: int
    headers: requests.structures.CaseInsensitiveDict[str]
    body: bytes
    kind: Any

    def value(self) -> T:
        return cast(T, msgspec.json.decode(self.body, type=self.kind))

    def problem(self) -> webhook.Error:
        return msgspec.json.decode(self.body, type=webhook.Error)


class _Client:
    def __init__(self, base_url: str, timeout_s: float = 30.0) -> None:
        self._base_url = base_url.rstrip("/")
        self._timeout_s = timeout_s
        self._session = requests.Session()

    def close(self) -> None:
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(
        self, method: str, path: str, kind: Any, accept: str | None, content_type: str | None = None, body: Any = None
    ) -> Answer[Any]:
        data = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
        response = self._session.request(
            method,
            self._base_url + path,
            data=data,
            headers={"Accept": accept, "Content-Type": content_type},
            timeout=self._timeout_s,
            allow_redirects=False,
        )
        return Answer(response.status_code, response.headers, response.content, kind)


class WebhookClient(_Client):
    """The API of openapi/webhook.yaml."""

    def negotiate(
        self, *, accept: str | None = "application/external.dns.webhook+json;version=1"
    ) -> Answer[webhook.Negotiation]:
        """Announce the media type and the domain filter."""
        return self._call("GET", "/", webhook.Negotiation, accept)

    def list_records(
        self, *, accept: str | None = "application/external.dns.webhook+json;version=1"
    ) -> Answer[webhook.Endpoints]:
        """List every record set."""
        return self._call("GET", "/records", webhook.Endpoints, accept)

    def apply_changes(
        self,
        body: webhook.Changes | bytes,
        *,
        accept: str | None = None,
        content_type: str | None = "application/external.dns.webhook+json;version=1",
    ) -> Answer[None]:
        """Apply changes by value."""
        return self._call("POST", "/records", None, accept, content_type, body)

    def adjust_endpoints(
        self,
        body: webhook.ReceivedEndpoints | bytes,
        *,
        accept: str | None = "application/external.dns.webhook+json;version=1",
        content_type: str | None = "application/external.dns.webhook+json;version=1",
    ) -> Answer[webhook.Endpoints]:
        """Rewrite desired endpoints into the form that the store will return."""
        return self._call("POST", "/adjustendpoints", webhook.Endpoints, accept, content_type, body)
