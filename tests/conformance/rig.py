"""Everything that the suite talks to, up and ready: API server, node, proxy and controller.

The controller runs with the account and the roles that the chart ships. Its class gives each Gateway an address of
its own out of a pool; there is no tunnel.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.conformance.namespace import POD_NET
from tests.kube.kubeenv import Programs, running
from tests.kube.processes import Recorded, spawn, stop, wait_ready
from tests.support.dns_endpoints import KubeApi
from tests.support.tied import tied
from tests.tunnelgw.sources.cluster import Cluster
from tunnelgw.model.kinds import Kind
from tunnelgw.options import DEFAULT_CONTROLLER

CLASS = "gateway-conformance"
CONFIG = "conformance"
USABLE_ADDRESS = "10.100.200.1"
UNUSABLE_ADDRESS = "192.0.2.1"
"""For documentation, and so not of this machine (RFC 5737)."""
POOL = [f"10.100.1.{number}" for number in range(1, 101)] + [USABLE_ADDRESS]
READY_S = 120.0
STOP_S = 30.0
_PROXY_API = "127.0.0.1:18082"
_HEALTH = "127.0.0.1:18081"
_METRICS = "127.0.0.1:18080"
# The namespace is ours alone, and with it its loopback.
_TOKEN = "conformance"


@contextmanager
def ready_rig(out: Path, programs: Programs, node: Path) -> Iterator[Path]:
    """The administrator's kubeconfig. Logs go to `out`."""
    with ExitStack() as stack:
        environment = stack.enter_context(running(out / "kube", programs))
        admin = stack.enter_context(KubeApi(environment))
        cluster = Cluster(environment, admin, out)
        _make_class(cluster)
        ready = out / "node.ready"
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
        yield environment.kubeconfig


def _make_class(cluster: Cluster) -> None:
    cluster.create(Kind.GATEWAY_CLASS_CONFIG, CONFIG, {"direct": {"addresses": POOL}})
    parameters = {"group": "tunnelgw.dev", "kind": str(Kind.GATEWAY_CLASS_CONFIG), "name": CONFIG}
    spec = {"controllerName": DEFAULT_CONTROLLER, "parametersRef": parameters}
    cluster.create(Kind.GATEWAY_CLASS, CLASS, spec)


@contextmanager
def _process(
    name: str, command: list[str], out: Path, env: Mapping[str, str], is_ready: Callable[[], bool]
) -> Iterator[Recorded]:
    process = spawn(name, tied(command), out / f"{name}.log", {**os.environ, **env})
    try:
        wait_ready(process, is_ready, READY_S)
        yield process
    finally:
        stop(process, STOP_S)
