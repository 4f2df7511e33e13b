"""All three daemons running, with some faults, and a real Prometheus that scrapes their metrics."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import requests
import yaml

from examples.controller_demo import copy_manifests
from examples.provider_demo import TokenContent
from tests.e2e.tunnel.connector import Connector
from tests.proxy.site import Backend
from tests.support.daemon import Daemon
from tests.support.edge.edge import Edge
from tests.support.gateway import Doors, Gateway
from tests.support.ports import ReservedPort
from tests.support.process import Process
from tests.support.programs import program
from tests.support.provider import Provider

HOST = "demo.example"
EDITED_EVERY = 10
"""Number of turns: a folder is read once its edits are over."""
SCRAPED_EVERY = "500ms"
READY_S = 30.0
RECORD = {"dnsName": "app.example.com", "recordType": "A", "targets": ["192.0.2.10"]}
KEPT = {**RECORD, "dnsName": "kept.example.com"}
PROTECTED = {**RECORD, "dnsName": "nas.lan"}
LOOP = {"dnsName": "loop.example.com", "recordType": "CNAME", "targets": ["loop.example.com"]}
UNKNOWN = {"dnsName": "x.example.com", "recordType": "NAPTR", "targets": ["x"]}
ROUTE = """
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: changing, namespace: shop}}
spec:
  parentRefs: [{{name: internet, namespace: infra}}]
  hostnames: [n{}.example]
  rules: [{{backendRefs: [{{group: tunnelgw.dev, kind: Backend, name: blue}}]}}]
"""

Sample = dict[str, Any]


class World:
    """The demo's manifests with a TLS listener; one of the two backends does not listen."""

    def __init__(self, folder: Path) -> None:
        with ExitStack() as stack:
            dead = stack.enter_context(ReservedPort())
            backend = stack.enter_context(Backend())
            edge = stack.enter_context(Edge())
            token = TokenContent.of(edge.tunnel.token)
            provider = stack.enter_context(Provider(account_id=token.account, tunnel_id=token.tunnel))
            self.proxy = stack.enter_context(Connector(edge, connections=2))
            self.empty_proxy = stack.enter_context(Gateway())
            manifests = folder / "manifests"
            doors = self.proxy.doors
            ports = {8000: doors.clear.number, 3000: int(backend.address.rpartition(":")[2]), 3001: dead.number}
            copy_manifests(manifests, ports, token)
            self._turns, self._route = 0, manifests / "changing.yaml"
            (manifests / "secure.yaml").write_text(_secure_gateway(doors))
            self.controller = stack.enter_context(_controller(manifests, self.proxy.api, provider.url))
            state = ["--store", "embedded", "--state-dir", str(folder), "--protect", "nas.lan"]
            self.webhook = stack.enter_context(Daemon.dnswebhook({}, state))
            self._prometheus = ReservedPort()
            stack.callback(self._prometheus.close)
            stack.enter_context(self._prometheus_process(folder))
            edge.wait_for_registered(2)
            self._session = stack.enter_context(requests.Session())
            self._resources = stack.pop_all()

    def _prometheus_process(self, folder: Path) -> Process:
        jobs = {
            "proxy": [self.proxy.address("config"), self.empty_proxy.address("config")],
            "controller": [self.controller.address("metrics")],
            "dnswebhook": [self.webhook.address("health")],
        }
        config = {
            "global": {"scrape_interval": SCRAPED_EVERY, "scrape_timeout": SCRAPED_EVERY},
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": targets}]} for job, targets in jobs.items()
            ],
        }
        file = folder / "prometheus.yaml"
        file.write_text(yaml.safe_dump(config))
        arguments = [f"--config.file={file}", f"--storage.tsdb.path={folder / 'tsdb'}"]
        arguments.append(f"--web.listen-address={self._prometheus.address}")
        process = Process("prometheus", [program("prometheus"), *arguments]).start()
        process.wait_for_line(lambda line: "Server is ready" in line, "that it is ready", READY_S)
        return process

    def go_on(self) -> None:
        """Give each daemon something to do that succeeds, and something that fails."""
        if not self._turns % EDITED_EVERY:
            self._route.write_text(ROUTE.format(self._turns))
        self._turns += 1
        for front in (self.proxy.doors.clear.address, self.proxy.edge.front):
            for path in ("/", "/api", "/old"):
                self._session.get(f"http://{front}{path}", headers={"Host": HOST}, timeout=10, allow_redirects=False)
            headers = {"Host": HOST, "Content-Type": "application/grpc"}
            self._session.post(f"http://{front}/api", headers=headers, timeout=10).raise_for_status()
        api = self.webhook.url("api")
        for changes in ({"create": [KEPT, RECORD, PROTECTED]}, {"delete": [RECORD]}):
            self._session.post(f"{api}/records", json=changes, timeout=10).raise_for_status()
            self._session.get(f"{api}/records", timeout=10).raise_for_status()
        self._session.post(f"{api}/records", json={"create": [LOOP]}, timeout=10)
        self._session.post(f"{api}/adjustendpoints", json=[UNKNOWN], timeout=10).raise_for_status()

    def answer(self, expression: str) -> list[Sample]:
        """The current result; fails if Prometheus refuses the expression."""
        url = f"http://{self._prometheus.address}/api/v1/query"
        answer = self._session.post(url, data={"query": expression}, timeout=10).json()
        assert answer["status"] == "success", f"{answer['error']}: {expression}"
        return cast(list[Sample], answer["data"]["result"])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._resources.close()


def _controller(manifests: Path, proxy: str, provider: str) -> Daemon:
    source = ["--source", "directory", "--manifests", str(manifests), "--proxy-endpoints", proxy]
    addresses = ["--provider-api-url", provider, "--metrics-addr", "127.0.0.1:0", "--health-addr", "127.0.0.1:0"]
    return Daemon("tunnelgw", ["run", *source, *addresses], {"PROXY_AUTH_TOKEN": "not asked for"})


def _secure_gateway(doors: Doors) -> str:
    issued = doors.authority.issue(HOST)
    data = {"tls.crt": issued.chain_pem, "tls.key": issued.key_pem}
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "tls", "namespace": "infra"},
        "type": "kubernetes.io/tls",
        "stringData": data,
    }
    listener = {
        "name": "https",
        "port": doors.tls.number,
        "protocol": "HTTPS",
        "hostname": HOST,
        "tls": {"certificateRefs": [{"name": "tls"}]},
    }
    gateway = {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": {"name": "secure", "namespace": "infra"},
        "spec": {"gatewayClassName": "direct", "listeners": [listener]},
    }
    return yaml.safe_dump_all([secret, gateway])
