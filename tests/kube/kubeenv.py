"""Start and stop a throw-away Kubernetes API server: etcd and kube-apiserver on loopback, and nothing else.

    python -m tests.kube up|status|down [--state DIR]        for people
    with running(folder, find_programs()) as environment:    for tests

Ports are free ones, certificates are fresh, the data is thrown away (etcd does not even fsync). RBAC is on and all
default admission plugins are. There is no controller-manager, scheduler, kubelet or DNS: no garbage collection, no
EndpointSlices, namespaces that are deleted stay `Terminating`.
"""

import http.client
import json
import os
import shutil
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tests.kube.pki import Pki, make_pki
from tests.kube.processes import Recorded, spawn, stop, wait_ready
from tests.programs.install import program_path
from tests.support.ports import LOOPBACK, ReservedPort
from tests.support.tied import tied

SERVICE_CIDR = "10.96.0.0/16"
SERVICE_ADDRESS = "10.96.0.1"
"""The first address of SERVICE_CIDR belongs to the Service `kubernetes`."""
ETCD_READY_S = 30.0
APISERVER_READY_S = 120.0
PROBE_S = 3.0
STOP_GRACE_S = 20.0
_COLLECTING = {"GOGC": "200"}
"""Half the work for garbage, for a fifth more memory: a fifth of what an API server does while tests run."""


class MissingProgram(Exception):
    """The message says which one, and what to run."""


def find_program(name: str) -> Path:
    """`$KUBEBUILDER_ASSETS/name`, else what `install.py` built, else `name` on PATH; raises MissingProgram."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    candidates = [Path(assets) / name] if assets else []
    candidates.append(program_path(name))
    on_path = shutil.which(name)
    if on_path:
        candidates.append(Path(on_path))
    for candidate in candidates:
        if candidate.exists():
            return candidate
    remedy = f"run `tests/programs/install.py {name}`"
    raise MissingProgram(f"{name} is not installed (looked for {candidates[0]}): {remedy}")


@dataclass(frozen=True, slots=True)
class Programs:
    etcd: Path
    kube_apiserver: Path


def find_programs() -> Programs:
    return Programs(find_program("etcd"), find_program("kube-apiserver"))


@dataclass(frozen=True, slots=True)
class Environment:
    """One API server that is up, as the state file describes it."""

    state: Path
    server: str
    processes: tuple[Recorded, ...]
    """In the order they were started."""
    ports: tuple[ReservedPort, ...] = ()
    """Theirs also while they start and are away; none where another process has started them."""

    @property
    def kubeconfig(self) -> Path:
        """Of the administrator."""
        return self.state / "kubeconfig"

    @property
    def pki(self) -> Pki:
        return Pki(self.state / "pki")

    def stop(self) -> None:
        for process in reversed(self.processes):
            stop(process, STOP_GRACE_S)
        for port in self.ports:
            port.close()


def start(state: Path, programs: Programs, *, is_tied: bool) -> Environment:
    """Bring an API server up in `state`, which is wiped first.

    `is_tied`: the kernel kills both programs when the calling process ends. Raises RuntimeError with the end of the
    log of the program that did not come up; nothing is left running then.
    """
    old = load(state)
    if old and any(process.is_alive for process in old.processes):
        raise RuntimeError(f"an API server is already up in {state}; run `python -m tests.kube down` first")
    shutil.rmtree(state, ignore_errors=True)
    state.mkdir(parents=True, mode=0o700)
    pki = make_pki(state / "pki", _server_names())
    ports = tuple(ReservedPort() for _ in range(3))
    etcd_port, peer_port, port = (reserved.number for reserved in ports)
    started: list[Recorded] = []
    try:
        for name, command, is_ready, ready_s in (
            ("etcd", _etcd_command(programs, state, etcd_port, peer_port), _etcd_probe(etcd_port), ETCD_READY_S),
            (
                "kube-apiserver",
                _apiserver_command(programs, pki, etcd_port, port),
                _apiserver_probe(pki, port),
                APISERVER_READY_S,
            ),
        ):
            started.append(_spawn(name, tied(command) if is_tied else command, state / f"{name}.log"))
            wait_ready(started[-1], is_ready, ready_s)
    except BaseException:
        for process in reversed(started):
            stop(process, STOP_GRACE_S)
        for reserved in ports:
            reserved.close()
        raise
    environment = Environment(state, f"https://{LOOPBACK}:{port}", tuple(started), ports)
    _save(environment)
    return environment


def restart_apiserver(environment: Environment) -> Environment:
    """End the API server and start it again on the same port and data; tied to the caller."""
    return _restart(environment, environment.processes[1:])


def restart_with_nothing(environment: Environment) -> Environment:
    """The same of both, with an etcd that is empty: its revisions begin anew, as after an old backup."""
    return _restart(environment, environment.processes, is_wiped=True)


def _restart(environment: Environment, processes: Sequence[Recorded], *, is_wiped: bool = False) -> Environment:
    commands = [Path(f"/proc/{old.pid}/cmdline").read_text().rstrip("\0").split("\0") for old in processes]
    for old in reversed(processes):
        stop(old, STOP_GRACE_S)
    if is_wiped:
        shutil.rmtree(environment.state / "etcd")
    new = [_spawn(old.name, tied(command), Path(old.log)) for old, command in zip(processes, commands, strict=True)]
    kept = environment.processes[: -len(new)]
    restarted = replace(environment, processes=(*kept, *new))
    port = int(environment.server.rpartition(":")[2])
    wait_ready(new[-1], _apiserver_probe(environment.pki, port), APISERVER_READY_S)
    return restarted


@contextmanager
def running(state: Path, programs: Programs) -> Iterator[Environment]:
    """An API server for as long as the block runs, and at most as long as this process lives."""
    environment = start(state, programs, is_tied=True)
    try:
        yield environment
    finally:
        environment.stop()


def load(state: Path) -> Environment | None:
    """What `start` recorded in `state`; None when nothing is."""
    try:
        document = json.loads((state / "state.json").read_text())
    except FileNotFoundError:
        return None
    return Environment(state, document["server"], tuple(Recorded(**process) for process in document["processes"]))


def _spawn(name: str, command: Sequence[str], log: Path) -> Recorded:
    return spawn(name, command, log, {**_COLLECTING, **os.environ})


def _save(environment: Environment) -> None:
    document = {"server": environment.server, "processes": [asdict(process) for process in environment.processes]}
    (environment.state / "state.json").write_text(json.dumps(document, indent=1) + "\n")
    _write_kubeconfig(environment)


def _server_names() -> list[str]:
    services = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"]
    return ["localhost", *services, LOOPBACK, SERVICE_ADDRESS]


def _etcd_command(programs: Programs, state: Path, port: int, peer_port: int) -> list[str]:
    client, peer = f"http://{LOOPBACK}:{port}", f"http://{LOOPBACK}:{peer_port}"
    return [
        str(programs.etcd),
        "--name=local",
        f"--data-dir={state / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=local={peer}",
        "--log-level=warn",
        "--unsafe-no-fsync",
    ]


def _apiserver_command(programs: Programs, pki: Pki, etcd_port: int, port: int) -> list[str]:
    own, kubelet, service_account = pki.pair("apiserver"), pki.pair("kubelet-client"), pki.service_account
    return [
        str(programs.kube_apiserver),
        f"--etcd-servers=http://{LOOPBACK}:{etcd_port}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={port}",
        f"--advertise-address={LOOPBACK}",
        "--endpoint-reconciler-type=none",
        f"--tls-cert-file={own.certificate}",
        f"--tls-private-key-file={own.key}",
        f"--client-ca-file={pki.authority}",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={service_account.certificate}",
        f"--service-account-signing-key-file={service_account.key}",
        f"--service-cluster-ip-range={SERVICE_CIDR}",
        f"--kubelet-client-certificate={kubelet.certificate}",
        f"--kubelet-client-key={kubelet.key}",
        "--kubelet-preferred-address-types=InternalIP",
        "--allow-privileged=true",
        "--profiling=false",
        "--v=1",
    ]


def _etcd_probe(port: int) -> Callable[[], bool]:
    return lambda: _answers_ok(http.client.HTTPConnection(LOOPBACK, port, timeout=PROBE_S), "/health")


def _apiserver_probe(pki: Pki, port: int) -> Callable[[], bool]:
    context = ssl.create_default_context(cafile=str(pki.authority))
    context.load_cert_chain(pki.pair("admin").certificate, pki.pair("admin").key)
    return lambda: _answers_ok(http.client.HTTPSConnection(LOOPBACK, port, timeout=PROBE_S, context=context), "/readyz")


def _answers_ok(connection: http.client.HTTPConnection, path: str) -> bool:
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.HTTPStatus.OK
    except OSError:
        return False
    finally:
        connection.close()


def _write_kubeconfig(environment: Environment) -> None:
    admin = environment.pki.pair("admin")
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "local",
        "clusters": [
            {
                "name": "local",
                "cluster": {
                    "server": environment.server,
                    "certificate-authority": str(environment.pki.authority),
                },
            }
        ],
        "users": [
            {"name": "admin", "user": {"client-certificate": str(admin.certificate), "client-key": str(admin.key)}}
        ],
        "contexts": [{"name": "local", "context": {"cluster": "local", "user": "admin"}}],
    }
    # JSON is YAML, so every reader of kubeconfig files takes it.
    environment.kubeconfig.write_text(json.dumps(document, indent=1) + "\n")
