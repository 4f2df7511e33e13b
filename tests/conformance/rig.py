"""Everything that the suite talks to, up and ready: API server, node, proxy and controller.

The controller runs with the account and the roles that the chart ships. Its class gives each Gateway an address of
its own out of a pool; there is no tunnel.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import requests
from prometheus_client.parser import text_string_to_metric_families

from tests.conformance.namespace import POD_NET
from tests.kube.kubeenv import Programs, running
from tests.kube.processes import Recorded, spawn, stop, wait_ready
from tests.support.dns_endpoints import REQUEST_TIMEOUT_S, KubeApi
from tests.support.tied import tied
from tests.tunnelgw.sources.cluster import Cluster
from tunnelgw.model.kinds import Kind
from tunnelgw.options import DEFAULT_CONTROLLER
from tunnelgw.report.statusqueue import UNCHANGED

CLASS = "gateway-conformance"
CONFIG = "conformance"
USABLE_ADDRESS = "10.100.200.1"
UNUSABLE_ADDRESS = "192.0.2.1"
"""For documentation, and so not of this machine (RFC 5737)."""
POOL = [f"10.100.1.{number}" for number in range(1, 101)] + [USABLE_ADDRESS]
READY_S = 120.0
QUIET_S = 3.0
QUIET_TRIES = 5
STOP_S = 30.0
ENVIRONMENT = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
"""No setting of the machine reaches what runs in here."""
# The namespace is ours alone, and with it its loopback.
_PROXY_API = "127.0.0.1:18082"
_HEALTH = "127.0.0.1:18081"
_METRICS = "127.0.0.1:18080"
_WRITING = frozenset({"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"})
_TOKEN = "conformance"


class Rig(NamedTuple):
    kubeconfig: Path
    """Of the administrator."""
    admin: KubeApi

    def status_writes(self) -> int:
        """How many statuses the controller has written, or tried to."""
        with requests.Session() as session:
            session.trust_env = False
            answer = session.get(f"http://{_METRICS}/metrics", timeout=REQUEST_TIMEOUT_S)
        return _sum(answer.text, "tunnelgw_status_writes_total", lambda labels: labels["outcome"] != UNCHANGED)

    def is_quiet(self) -> bool:
        """Whether writing comes to an end when nothing happens: no write may be the cause of another.

        The API server's own Leases do not count.
        """
        seen = self._writes()
        if not seen:
            raise RuntimeError("the API server has counted no writes: its metrics have other names than we know")
        for _ in range(QUIET_TRIES):
            time.sleep(QUIET_S)
            before, seen = seen, self._writes()
            if before == seen:
                return True
        return False

    def _writes(self) -> int:
        return _sum(self.admin.metrics(), "apiserver_request_total", _is_write)


def _sum(metrics: str, name: str, counts: Callable[[Mapping[str, str]], bool]) -> int:
    samples = (sample for family in text_string_to_metric_families(metrics) for sample in family.samples)
    return int(sum(sample.value for sample in samples if sample.name == name and counts(sample.labels)))


def _is_write(labels: Mapping[str, str]) -> bool:
    return labels["verb"] in _WRITING and labels["resource"] != "leases"


@contextmanager
def ready_rig(out: Path, programs: Programs, node: Path) -> Iterator[Rig]:
    """Logs go to `out`."""
    with ExitStack() as stack:
        environment = stack.enter_context(running(out / "kube", programs))
        admin = stack.enter_context(KubeApi(environment))
        cluster = Cluster(environment, admin, out, release="conformance-crds")
        _make_class(cluster)
        ready = out / "node.ready"
        ready.unlink(missing_ok=True)
        command = [str(node), "--kubeconfig", str(environment.kubeconfig), "--pod-cidr", POD_NET]
        stack.enter_context(_process("node", [*command, "--ready-file", str(ready)], out, {}, ready.exists))
        secret = {"PROXY_AUTH_TOKEN": _TOKEN}
        proxy = [sys.executable, "-m", "proxy", "run", "--config-addr", _PROXY_API]
        stack.enter_context(_process("proxy", proxy, out, secret, lambda: True))
        controller = [sys.executable, "-m", "tunnelgw", "run", "--kubeconfig", str(cluster.kubeconfig)]
        addresses = ["--proxy-endpoints", f"http://{_PROXY_API}", "--health-addr", _HEALTH, "--metrics-addr", _METRICS]

        def is_class_accepted() -> bool:
            found = admin.call("GET", f"{cluster.path(Kind.GATEWAY_CLASS)}/{CLASS}")
            conditions = found.get("status", {}).get("conditions", ())
            return any((each["type"], each["status"]) == ("Accepted", "True") for each in conditions)

        stack.enter_context(_process("controller", [*controller, *addresses], out, secret, is_class_accepted))
        yield Rig(environment.kubeconfig, admin)


def _make_class(cluster: Cluster) -> None:
    cluster.create(Kind.GATEWAY_CLASS_CONFIG, CONFIG, {"direct": {"addresses": POOL}})
    parameters = {"group": "tunnelgw.dev", "kind": str(Kind.GATEWAY_CLASS_CONFIG), "name": CONFIG}
    spec = {"controllerName": DEFAULT_CONTROLLER, "parametersRef": parameters}
    cluster.create(Kind.GATEWAY_CLASS, CLASS, spec)


@contextmanager
def _process(
    name: str, command: list[str], out: Path, env: Mapping[str, str], is_ready: Callable[[], bool]
) -> Iterator[Recorded]:
    process = spawn(name, tied(command), out / f"{name}.log", {**ENVIRONMENT, **env})
    try:
        wait_ready(process, is_ready, READY_S)
        yield process
    finally:
        stop(process, STOP_S)
