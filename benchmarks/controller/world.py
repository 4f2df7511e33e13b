"""The programs of a run: a real API server, the simulated provider, the proxy with one worker, and the controller."""

import http.client
import itertools
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import requests
from prometheus_client.parser import text_string_to_metric_families

from benchmarks import procfs
from benchmarks.controller import objects
from benchmarks.controller.admin import Admin
from benchmarks.proxy.programs import free_port
from tests.kube.kubeenv import find_programs, running
from tests.support.daemon import Daemon
from tests.support.dns_endpoints import KubeApi
from tests.support.provider.provider import TOKEN, Provider
from tests.support.proxydaemon import ProxyDaemon
from tests.tunnelgw.sources.cluster import HELM, LATE, Cluster
from tunnelgw.model.kinds import Kind

_AUTH_TOKEN = "benchmark-of-the-controller"  # noqa: S105
_ASK_S = 60.0
_POLL_S = 0.001
_NO_ADDRESS = b"the backend has no address"
LIVE_S = 60.0
_NAMESPACES = itertools.count(1)


class Gone(Exception):
    """The awaited state did not occur; the message says which."""


class World:
    """The API server, prepared as by the chart; used for one case after another."""

    def __init__(self, admin: Admin, kubeconfig: Path, provider: Provider, folder: Path) -> None:
        self.admin = admin
        self.provider = provider
        self._kubeconfig = kubeconfig
        self._folder = folder

    @contextmanager
    def populated(self, routes: int) -> Iterator["Population"]:
        """This many routes in a namespace of their own, removed afterwards."""
        found = Population(f"bench-{next(_NAMESPACES)}", routes, free_port())
        self.admin.call("POST", "/api/v1/namespaces", {"metadata": {"name": found.namespace}})
        made = objects.population(found.namespace, routes, found.port)
        self.admin.side_by_side(lambda each: self.admin.call("POST", *each), made)
        try:
            yield found
        finally:
            for kind in (Kind.HTTP_ROUTE, Kind.GATEWAY, Kind.ENDPOINT_SLICE, Kind.SERVICE):
                self.admin.call("DELETE", objects.path(kind, found.namespace))

    @contextmanager
    def proxy(self) -> Iterator["Proxy"]:
        """A new proxy without a configuration."""
        with Proxy(tempfile.mkdtemp(dir=self._folder)) as proxy:
            proxy.wait_for_message("listening", server="config")
            yield proxy

    @contextmanager
    def controller(self, proxy: "Proxy") -> Iterator["Controller"]:
        with Controller(self._kubeconfig, proxy.api, self.provider.url) as controller:
            yield controller

    def writes(self) -> int:
        """How many requests have changed something in the API server, excluding those that it sends to itself."""
        page = self.admin.call("GET", "/metrics").decode()
        return int(
            sum(
                sample.value
                for family in text_string_to_metric_families(page)
                if family.name == "apiserver_request"
                for sample in family.samples
                if sample.name == "apiserver_request_total"
                and sample.labels["verb"] in ("POST", "PUT", "PATCH", "DELETE", "APPLY")
                and sample.labels["resource"] in _WRITTEN
            )
        )


_WRITTEN = frozenset({"gatewayclasses", "gateways", "httproutes", "secrets", "events", "configmaps"})


class Population:
    def __init__(self, namespace: str, routes: int, port: int) -> None:
        self.namespace = namespace
        self.routes = routes
        self.port = port

    def route(self, number: int) -> str:
        return objects.path(Kind.HTTP_ROUTE, self.namespace, f"app{number}")

    def slice(self, number: int) -> str:
        return objects.path(Kind.ENDPOINT_SLICE, self.namespace, objects.service_name(number))


class Proxy(ProxyDaemon):
    def __init__(self, state: str) -> None:
        arguments = ["--workers", "1", "--state-dir", state, "--access-log", "off"]
        super().__init__(arguments, {"PROXY_AUTH_TOKEN": _AUTH_TOKEN})

    def holds_configuration(self) -> bool:
        headers = {"Authorization": f"Bearer {_AUTH_TOKEN}"}
        return requests.head(self.config_url, headers=headers, timeout=_ASK_S).ok

    def cpu_s(self) -> float:
        """CPU time of supervisor and worker."""
        children = Path(f"/proc/{self.pid}/task").glob("*/children")
        pids = [int(pid) for each in children for pid in each.read_text().split()]
        return procfs.cpu_s(self.pid) + sum(procfs.cpu_s(pid) for pid in pids)


class Controller(Daemon):
    def __init__(self, kubeconfig: Path, proxy: str, provider: str) -> None:
        arguments = ["--kubeconfig", str(kubeconfig), "--proxy-endpoints", proxy, "--provider-api-url", provider]
        addresses = ["--metrics-addr", "127.0.0.1:0", "--health-addr", "127.0.0.1:0"]
        super().__init__("tunnelgw", ["run", *arguments, *addresses], {"PROXY_AUTH_TOKEN": _AUTH_TOKEN})

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the samples with these labels."""
        page = requests.get(f"{self.url('metrics')}/metrics", timeout=_ASK_S).text
        return sum(
            sample.value
            for family in text_string_to_metric_families(page)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def written_routes(self) -> float:
        """How many HTTPRoute statuses have been written."""
        return self.metric("tunnelgw_status_writes_total", kind=str(Kind.HTTP_ROUTE), outcome="written")

    def is_quiet(self) -> bool:
        return self.metric("tunnelgw_status_queue_depth") == 0

    def cpu_s(self) -> float:
        return procfs.cpu_s(self.pid)

    def rss_bytes(self) -> int:
        return procfs.rss_bytes(self.pid)

    def peak_rss_bytes(self) -> int:
        return procfs.peak_rss_bytes(self.pid)


class Probe:
    """A client of the proxy, on one connection: observes what routes do. For one thread."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_ASK_S)

    def close(self) -> None:
        self._connection.close()

    def stamp(self, route: int) -> str:
        """The path that the route's `/stamp` redirects to; empty if the route does not respond."""
        return urlsplit(self._ask(route, "/stamp")[0]).path

    def has_address(self, route: int) -> bool:
        """Whether the route's Service has an address."""
        return _NO_ADDRESS not in self._ask(route, "/")[1]

    def wait_for_stamp(self, route: int, wanted: str) -> float:
        """When it was live (monotonic clock)."""
        return self._wait(lambda: self.stamp(route) == wanted, f"{wanted} of route {route}")

    def wait_for_address(self, route: int, *, wanted: bool) -> float:
        return self._wait(lambda: self.has_address(route) == wanted, f"endpoints of route {route}: {wanted}")

    def _wait(self, is_live: Callable[[], bool], what: str) -> float:
        end_s = time.monotonic() + LIVE_S
        while not is_live():
            if time.monotonic() > end_s:
                raise Gone(f"{what}: not live after {LIVE_S:g} s")
            time.sleep(_POLL_S)
        return time.monotonic()

    def _ask(self, route: int, path: str) -> tuple[str, bytes]:
        """The response's Location and body."""
        self._connection.request("GET", path, headers={"Host": objects.host(route)})
        answer = self._connection.getresponse()
        return answer.headers.get("Location", ""), answer.read()


@contextmanager
def opened() -> Iterator[World]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-controller-")))
        environment = stack.enter_context(running(folder / "kube", find_programs()))
        provider = stack.enter_context(Provider())
        with KubeApi(environment) as preparing:
            cluster = Cluster(environment, preparing, folder)
            preparing.install_crd(HELM / "crds" / LATE)
        admin = Admin(environment)
        stack.callback(admin.close)
        for path, document in (*objects.gateway_class(), objects.credentials(TOKEN)):
            admin.call("POST", path, document)
        yield World(admin, cluster.kubeconfig, provider, folder)
