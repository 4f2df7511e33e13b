#!/usr/bin/env python3
"""Build the Go programs that the tests drive, each by name from its published module, once per machine.

    tests/programs/install.py [--list] [NAME ...]

They land in `$TUNNELGW_TOOLS` (default `~/.cache/tunnelgw/tools`), outside the checkout, as `NAME-VERSION`, together
with the definitions of external-dns's DNSEndpoint objects and of Gateway API's. What is already there is left alone.
Prints one path per name. Needs `go` on PATH and a Go module proxy; exits 1 and says what is missing otherwise. Standard
library only, so that it runs before any virtual environment exists.
"""

import argparse
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

EXTERNAL_DNS_VERSION = "0.21.0"  # the newest whose module requirements can be fetched by name
ETCD_VERSION = "3.6.16"
KUBERNETES_VERSION = "1.36.3"
H2SPEC_VERSION = "2.2.1"
CONNECT_CONFORMANCE_VERSION = "1.0.7"
HELM_VERSION = "4.3.1"
GATEWAY_API_VERSION = "1.7.0"
OLD_GATEWAY_API_VERSION = "1.1.0"  # the oldest that serves GRPCRoute as v1
CONFORMANCE_GATEWAY_API_VERSION = "1.6.1"  # the newest whose suite needs no module that cannot be fetched
CONFORMANCE_SOURCES = Path(__file__).resolve().parent.parent / "conformance" / "suite"
LONGEST_ERROR_LINES = 40


def tools_dir() -> Path:
    return Path(os.environ.get("TUNNELGW_TOOLS") or Path.home() / ".cache" / "tunnelgw" / "tools")


def say(text: str) -> None:
    print(f"[install] {text}", file=sys.stderr, flush=True)


def go(*args: str, cwd: Path, **env: str) -> str:
    """The standard output of `go`; its notes are shown only when it fails."""
    environment = {**os.environ, "CGO_ENABLED": "0", **env}
    done = subprocess.run(["go", *args], cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        last = "\n".join((done.stderr + done.stdout).splitlines()[-LONGEST_ERROR_LINES:])
        sys.exit(
            f"{last}\n[install] `go {' '.join(args)}` failed with exit code {done.returncode}; see the lines above"
        )
    return done.stdout


def download(module: str, cwd: Path) -> dict[str, str]:
    """Where the module cache keeps `module` (`path@version`): keys `Dir` and `GoMod`."""
    found: dict[str, str] = json.loads(go("mod", "download", "-json", module, cwd=cwd))
    return found


def archive_of(module: str, cwd: Path) -> Path:
    """`module` as it was published, whatever Go it wants."""
    asked = ["go", "mod", "download", "-json", module]
    done = subprocess.run(asked, cwd=cwd, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout or "{}")
    if "Zip" not in found:
        sys.exit(f"{done.stderr}[install] `{' '.join(asked)}` failed: {found.get('Error', 'see the lines above')}")
    return Path(found["Zip"])


def build_external_dns(work: Path, program: Path) -> None:
    go("install", f"sigs.k8s.io/external-dns@v{EXTERNAL_DNS_VERSION}", cwd=work, GOBIN=str(work))
    shutil.move(work / "external-dns", program)


def copy_dnsendpoint_crd(work: Path, crd: Path) -> None:
    module = Path(download(f"sigs.k8s.io/external-dns@v{EXTERNAL_DNS_VERSION}", work)["Dir"])
    shutil.copyfile(module / "config" / "crd" / "standard" / "dnsendpoints.externaldns.k8s.io.yaml", crd)


def build_etcd(work: Path, program: Path) -> None:
    (work / "main.go").write_text(
        "package main\n\n"
        'import (\n\t"os"\n\n\t"go.etcd.io/etcd/server/v3/etcdmain"\n)\n\n'
        "func main() { etcdmain.Main(os.Args) }\n"
    )
    go("mod", "init", "tunnelgw.test/etcd", cwd=work)
    go("get", f"go.etcd.io/etcd/server/v3@v{ETCD_VERSION}", cwd=work)
    go("mod", "tidy", cwd=work)
    go("build", "-trimpath", "-ldflags", "-s -w", "-o", str(program), ".", cwd=work)


def build_of_kubernetes(command: str, work: Path, program: Path) -> None:
    """`k8s.io/kubernetes` replaces its staging modules by folders; outside its tree they are the published ones."""
    go("mod", "init", f"tunnelgw.test/{command}", cwd=work)
    module = download(f"k8s.io/kubernetes@v{KUBERNETES_VERSION}", work)
    staging = re.findall(r"^\s*(?:replace\s+)?(\S+) => \./staging/src/", Path(module["GoMod"]).read_text(), re.M)
    published = "v0." + KUBERNETES_VERSION.partition(".")[2]
    edits = [f"-replace={name}={name}@{published}" for name in staging]
    go("mod", "edit", f"-require=k8s.io/kubernetes@v{KUBERNETES_VERSION}", *edits, cwd=work)
    version = f"-X k8s.io/component-base/version.gitVersion=v{KUBERNETES_VERSION}"
    package = f"k8s.io/kubernetes/cmd/{command}"
    go("build", "-mod=mod", "-trimpath", "-ldflags", f"-s -w {version}", "-o", str(program), package, cwd=work)


def build_h2spec(work: Path, program: Path) -> None:
    go("install", f"github.com/summerwind/h2spec/cmd/h2spec@v{H2SPEC_VERSION}+incompatible", cwd=work, GOBIN=str(work))
    shutil.move(work / "h2spec", program)


def build_connect_conformance(work: Path, built: Path) -> None:
    """Folder with `connectconformance`, the suite and its clients, and `referenceserver`."""
    built.mkdir()
    for command in ("connectconformance", "referenceserver"):
        module = f"connectrpc.com/conformance/cmd/{command}@v{CONNECT_CONFORMANCE_VERSION}"
        go("install", "-trimpath", "-ldflags", "-s -w", module, cwd=work, GOBIN=str(work))
        shutil.move(work / command, built / command)


def build_helm(work: Path, program: Path) -> None:
    major = HELM_VERSION.partition(".")[0]
    module = f"helm.sh/helm/v{major}/cmd/helm@v{HELM_VERSION}"
    go("install", "-trimpath", "-ldflags", "-s -w", module, cwd=work, GOBIN=str(work))
    shutil.move(work / "helm", program)


def copy_gateway_api_crds(version: str, work: Path, crds: Path) -> None:
    """Folders `standard` and `experimental`. Read from the archive, since Go unpacks none that wants a newer Go."""
    crds.mkdir()
    module = f"sigs.k8s.io/gateway-api@v{version}"
    with zipfile.ZipFile(archive_of(module, work)) as archive:
        for channel in ("standard", "experimental"):
            (crds / channel).mkdir()
            folder = f"{module}/config/crd/{channel}/"
            for name in archive.namelist():
                if name.startswith(folder) and name.endswith(".yaml"):
                    (crds / channel / name.removeprefix(folder)).write_bytes(archive.read(name))


def build_conformance(work: Path, built: Path) -> None:
    """Folder with `suite`, Gateway API's conformance suite as one program, and `node`, which is ours."""
    sources = work / "sources"
    shutil.copytree(CONFORMANCE_SOURCES, sources)
    built.mkdir()
    go("build", "-trimpath", "-ldflags", "-s -w", "-o", str(built / "node"), "./node", cwd=sources)
    go("test", "-c", "-trimpath", "-ldflags", "-s -w", "-o", str(built / "suite"), ".", cwd=sources)


def state_of(sources: Path) -> str:
    """Other contents, another word."""
    digest = hashlib.sha256()
    for file in sorted(sources.rglob("*")):
        if file.is_file():
            digest.update(f"{file.relative_to(sources)}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:12]


TOOLS: dict[str, tuple[str, Callable[[Path, Path], None]]] = {
    "external-dns": (EXTERNAL_DNS_VERSION, build_external_dns),
    "dnsendpoint-crd": (EXTERNAL_DNS_VERSION, copy_dnsendpoint_crd),
    "etcd": (ETCD_VERSION, build_etcd),
    "kube-apiserver": (KUBERNETES_VERSION, partial(build_of_kubernetes, "kube-apiserver")),
    "kubectl": (KUBERNETES_VERSION, partial(build_of_kubernetes, "kubectl")),
    "gateway-api-crds": (GATEWAY_API_VERSION, partial(copy_gateway_api_crds, GATEWAY_API_VERSION)),
    "conformance-crds": (
        CONFORMANCE_GATEWAY_API_VERSION,
        partial(copy_gateway_api_crds, CONFORMANCE_GATEWAY_API_VERSION),
    ),
    "old-gateway-api-crds": (OLD_GATEWAY_API_VERSION, partial(copy_gateway_api_crds, OLD_GATEWAY_API_VERSION)),
    "h2spec": (H2SPEC_VERSION, build_h2spec),
    "connect-conformance": (CONNECT_CONFORMANCE_VERSION, build_connect_conformance),
    "helm": (HELM_VERSION, build_helm),
    "conformance": (f"{CONFORMANCE_GATEWAY_API_VERSION}-{state_of(CONFORMANCE_SOURCES)}", build_conformance),
}


def program_path(name: str) -> Path:
    """Where `install` puts this tool; it need not exist."""
    return tools_dir() / f"{name}-{TOOLS[name][0]}"


@contextmanager
def one_at_a_time(name: str) -> Iterator[None]:
    """Two runs beside each other must not build the same thing twice; the lock ends with the process."""
    with (tools_dir() / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def install(name: str) -> Path:
    tool = program_path(name)
    if tool.exists():
        return tool
    if shutil.which("go") is None:
        sys.exit(f"[install] cannot build {name}: `go` is not on PATH; install Go 1.26 or newer, or put {tool} there")
    tools_dir().mkdir(parents=True, exist_ok=True)
    with one_at_a_time(name):
        if not tool.exists():
            say(f"building {name} {TOOLS[name][0]} (once per machine; minutes with a cold cache)")
            with tempfile.TemporaryDirectory(dir=tools_dir(), prefix=f".{name}-") as work:
                built = Path(work) / f"built-{name}"
                TOOLS[name][1](Path(work), built)
                built.replace(tool)  # never a half-written program under the final name
    return tool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", metavar="NAME", nargs="*", help=f"of {', '.join(TOOLS)}; default: all")
    parser.add_argument("--list", action="store_true", help="print where each would be, build nothing")
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(TOOLS))
    if unknown:
        parser.error(f"unknown name {', '.join(unknown)}; known: {', '.join(TOOLS)}")
    for name in options.names or TOOLS:
        print(program_path(name) if options.list else install(name))


if __name__ == "__main__":
    main()
