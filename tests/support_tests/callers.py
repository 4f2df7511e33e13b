"""A plain client for tests of the simulator: raw requests, nothing interpreted."""

from typing import Any

import requests

from tests.support.controller import Controller

TIMEOUT_S = 10.0


class Caller:
    """Calls with the API key unless `headers` are given; `v2` and `policies` append to the collection's URL."""

    def __init__(self, controller: Controller, headers: dict[str, str] | None = None) -> None:
        self.controller = controller
        self.session = requests.Session()
        # No proxies, CA bundles or netrc of the machine that runs the tests.
        self.session.trust_env = False
        self.session.headers.update({"X-API-KEY": controller.api_key} if headers is None else headers)

    def __enter__(self) -> "Caller":
        return self

    def __exit__(self, *_: object) -> None:
        self.session.close()

    def call(self, method: str, url: str, content: Any = None, **more: Any) -> requests.Response:
        return self.session.request(method, url, json=content, timeout=TIMEOUT_S, allow_redirects=False, **more)

    def v2(self, method: str, rest: str = "", content: Any = None, **more: Any) -> requests.Response:
        return self.call(method, self.controller.v2_url + rest, content, **more)

    def policies(self, method: str, rest: str = "", content: Any = None, **more: Any) -> requests.Response:
        return self.call(method, self.controller.policies_url + rest, content, **more)


def a_record(key: str = "app.example.com", value: str = "192.0.2.10", **more: Any) -> dict[str, Any]:
    return {"key": key, "record_type": "A", "value": value, **more}


def a_policy(domain: str = "app.example.com", value: str = "192.0.2.10", **more: Any) -> dict[str, Any]:
    return {"type": "A_RECORD", "enabled": True, "domain": domain, "ipv4Address": value, "ttlSeconds": 0, **more}
