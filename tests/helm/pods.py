"""The part of a kubelet that runs containers: processes with the environment and the volumes that their Pods name.

Another program gives Deployments their Pods and Pods their addresses. There are no images: the programs are of this
checkout.
"""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Any

import requests

from tests.kube.processes import Recorded, spawn, stop, wait_until
from tests.support.dns_endpoints import KubeApi
from tests.support.tied import tied

PROGRAMS = Path(sys.executable).parent
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
PROBE_S = 5.0
RUN_S = 60.0

Object = dict[str, Any]


@dataclass(slots=True)
class _Container:
    """The only container of its Pod."""

    pod: Object
    words: list[str]
    mounts: dict[str, str]
    environment: dict[str, str]
    log: Path
    process: Recorded | None = None

    @property
    def name(self) -> str:
        return str(self.pod["metadata"]["name"])

    def command(self, program: str, *arguments: str) -> list[str]:
        spec = {"mounts": self.mounts, "command": [str(PROGRAMS / program), *arguments]}
        return tied(["unshare", "--mount", sys.executable, "-m", "tests.helm.enter", json.dumps(spec)])

    def start(self) -> None:
        self.process = spawn(self.name, self.command(*self.words), self.log, self.environment)

    def check(self) -> None:
        """Raises RuntimeError if it has ended by itself."""
        if self.process is None or not self.process.is_alive:
            raise RuntimeError(f"{self.name} has ended:\n{self.log.read_text(errors='replace')}")

    def stop(self) -> None:
        """As a kubelet does, within the Pod's grace period. Raises RuntimeError when that is too short."""
        self.check()
        process = self.process
        assert process is not None
        grace_s = self.pod["spec"]["terminationGracePeriodSeconds"]
        os.kill(process.pid, signal.SIGTERM)
        if not wait_until(lambda: not process.is_alive, grace_s):
            stop(process, 0.0)
            raise RuntimeError(f"{self.name} has not ended in {grace_s} s:\n{self.log.read_text(errors='replace')}")


class Containers:
    def __init__(self, api: KubeApi, server: str, authority: Path, folder: Path) -> None:
        """`server`, `authority`: of the API server, as Pods see it."""
        self._api = api
        self._host, _, self._port = server.partition("://")[2].rpartition(":")
        self._authority = authority
        self._folder = folder
        self._running: dict[str, _Container] = {}
        self.ended: set[str] = set()
        """Names of deleted Pods whose programs have ended."""

    def tend(self, namespace: str) -> list[Object]:
        """Bring what runs in line with the Pods, and return those that run."""
        listed = self._api.call("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
        pods = {pod["metadata"]["uid"]: pod for pod in listed}
        for uid in self._running.keys() - pods.keys():
            self._end(uid)
        for uid, pod in pods.items():
            if uid not in self._running and pod.get("status", {}).get("podIP"):
                # Objects that a Pod references may be created later.
                with suppress(requests.HTTPError):
                    self._start(uid, pod)
        return [container.pod for container in self._running.values()]

    def is_ready(self, pod: Object) -> bool:
        """What the kubelet's readiness probe finds. Raises RuntimeError when the program has ended."""
        self._of(pod).check()
        container = pod["spec"]["containers"][0]
        probe = container["readinessProbe"]["httpGet"]
        (port,) = [each["containerPort"] for each in container["ports"] if each["name"] == probe["port"]]
        return fetch(probe["scheme"], pod["status"]["podIP"], port, probe["path"])[0] == 200

    def restart(self, pod: Object) -> None:
        """As after a program's exit: the Pod keeps its address and its volumes."""
        self._of(pod).stop()
        self._of(pod).start()

    def run(self, pod: Object, *words: str) -> subprocess.CompletedProcess[str]:
        """As `kubectl exec` does."""
        container = self._of(pod)
        return subprocess.run(
            container.command(*words),
            env=container.environment,
            capture_output=True,
            text=True,
            timeout=RUN_S,
            check=False,
        )

    def log_of(self, pod: Object) -> str:
        return self._of(pod).log.read_text(errors="replace")

    def close(self) -> None:
        for uid in list(self._running):
            self._end(uid)

    def _of(self, pod: Object) -> _Container:
        return self._running[pod["metadata"]["uid"]]

    def _start(self, uid: str, pod: Object) -> None:
        (container,) = pod["spec"]["containers"]
        environment: dict[str, str] = {}
        for each in container["env"]:
            environment[each["name"]] = _expanded(self._value(pod, each), environment)
        folder = Path(tempfile.mkdtemp(dir=self._folder, prefix=f"{pod['metadata']['name']}-"))
        volumes = {each["name"]: self._volume(pod, each, folder) for each in pod["spec"]["volumes"]}
        mounts = {each["mountPath"]: str(volumes[each["name"]]) for each in container["volumeMounts"]}
        words = [*container["command"], *(_expanded(word, environment) for word in container.get("args", ()))]
        given = {"PATH": PATH, "KUBERNETES_SERVICE_HOST": self._host, "KUBERNETES_SERVICE_PORT": self._port}
        self._running[uid] = _Container(pod, words, mounts, {**given, **environment}, folder / "log")
        self._running[uid].start()

    def _end(self, uid: str) -> None:
        container = self._running.pop(uid)
        container.stop()
        self.ended.add(container.name)

    # -- what a Pod references ----------------------------------------------------------------------------------------

    def _value(self, pod: Object, variable: Object) -> str:
        source = variable.get("valueFrom", {})
        if "secretKeyRef" in source:
            reference = source["secretKeyRef"]
            return self._data(pod, "secrets", reference["name"])[reference["key"]].decode()
        if "fieldRef" in source:
            return str({"status.podIP": pod["status"]["podIP"]}[source["fieldRef"]["fieldPath"]])
        return str(variable["value"])

    def _volume(self, pod: Object, volume: Object, folder: Path) -> Path:
        place = folder / str(volume["name"])
        place.mkdir()
        if "emptyDir" in volume:
            place.chmod(0o777)
            return place
        for name, content in self._files(pod, volume).items():
            (place / name).write_bytes(content)
        return place

    def _files(self, pod: Object, volume: Object) -> dict[str, bytes]:
        if "projected" in volume:
            files: dict[str, bytes] = {}
            for source in volume["projected"]["sources"]:
                files |= self._projected(pod, source)
            return files
        source, plural = (volume["secret"], "secrets") if "secret" in volume else (volume["configMap"], "configmaps")
        data = self._data(pod, plural, source.get("secretName") or source["name"])
        return {item["path"]: data[item["key"]] for item in source["items"]}

    def _projected(self, pod: Object, source: Object) -> dict[str, bytes]:
        """The three parts of a service account's folder."""
        namespace = pod["metadata"]["namespace"]
        if "configMap" in source:
            return {source["configMap"]["items"][0]["path"]: self._authority.read_bytes()}
        if "downwardAPI" in source:
            return {source["downwardAPI"]["items"][0]["path"]: namespace.encode()}
        account = pod["spec"]["serviceAccountName"]
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        answer = self._api.call("POST", path, {"spec": {"expirationSeconds": 3600}})
        return {source["serviceAccountToken"]["path"]: answer["status"]["token"].encode()}

    def _data(self, pod: Object, plural: str, name: str) -> dict[str, bytes]:
        found = self._api.call("GET", f"/api/v1/namespaces/{pod['metadata']['namespace']}/{plural}/{name}")
        data = found.get("data", {})
        if plural == "secrets":
            return {key: base64.b64decode(value) for key, value in data.items()}
        return {key: value.encode() for key, value in data.items()}


def fetch(scheme: str, address: str, port: int, path: str, **headers: str) -> tuple[int, bytes]:
    """Status code and body; 0 without an answer. Like kubelets, it does not verify certificates."""
    if scheme == "HTTPS":
        context = ssl._create_unverified_context()
        connection: HTTPConnection = HTTPSConnection(address, port, timeout=PROBE_S, context=context)
    else:
        connection = HTTPConnection(address, port, timeout=PROBE_S)
    try:
        connection.request("GET", path, headers=headers)
        with connection.getresponse() as response:
            return response.status, response.read()
    except OSError:
        return 0, b""
    finally:
        connection.close()


def _expanded(word: str, environment: dict[str, str]) -> str:
    """$(NAME), as in the `args` of a container."""
    return re.sub(r"\$\((\w+)\)", lambda match: environment.get(match[1], match[0]), word)
