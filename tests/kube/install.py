#!/usr/bin/env python3
"""Build the Go programs that the tests drive, each by name from its published module, once per machine.

    tests/kube/install.py [--list] [NAME ...]

Programs land in `$TUNNELGW_TOOLS` (default `~/.cache/tunnelgw/tools`), outside the checkout, as `NAME-VERSION`.
A program that is already there is left alone. Prints one path per name. Needs `go` on PATH and the Go module
proxy; exits 1 and says which one is missing otherwise.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

EXTERNAL_DNS_VERSION = "0.21.0"  # the newest whose module requirements can be fetched by name
ETCD_VERSION = "3.6.16"
KUBERNETES_VERSION = "1.36.3"


def tools_dir() -> Path:
    return Path(os.environ.get("TUNNELGW_TOOLS") or Path.home() / ".cache" / "tunnelgw" / "tools")


def say(text: str) -> None:
    print(f"[install] {text}", file=sys.stderr, flush=True)


def go(*args: str, cwd: Path, **env: str) -> str:
    done = subprocess.run(
        ["go", *args], cwd=cwd, env={**os.environ, "CGO_ENABLED": "0", **env}, stdout=subprocess.PIPE, text=True
    )
    if done.returncode:
        sys.exit(f"[install] `go {' '.join(args)}` failed with exit code {done.returncode}; see the lines above")
    return done.stdout


def build_external_dns(work: Path, program: Path) -> None:
    go("install", f"sigs.k8s.io/external-dns@v{EXTERNAL_DNS_VERSION}", cwd=work, GOBIN=str(work))
    shutil.move(work / "external-dns", program)


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


def build_kube_apiserver(work: Path, program: Path) -> None:
    """`k8s.io/kubernetes` replaces its staging modules by folders; outside its tree they are the published ones."""
    go("mod", "init", "tunnelgw.test/kube-apiserver", cwd=work)
    module = json.loads(go("mod", "download", "-json", f"k8s.io/kubernetes@v{KUBERNETES_VERSION}", cwd=work))
    staging = re.findall(r"^\s*(?:replace\s+)?(\S+) => \./staging/src/", Path(module["GoMod"]).read_text(), re.M)
    published = "v0." + KUBERNETES_VERSION.partition(".")[2]
    edits = [f"-replace={name}={name}@{published}" for name in staging]
    go("mod", "edit", f"-require=k8s.io/kubernetes@v{KUBERNETES_VERSION}", *edits, cwd=work)
    version = f"-X k8s.io/component-base/version.gitVersion=v{KUBERNETES_VERSION}"
    package = "k8s.io/kubernetes/cmd/kube-apiserver"
    go("build", "-mod=mod", "-trimpath", "-ldflags", f"-s -w {version}", "-o", str(program), package, cwd=work)


PROGRAMS: dict[str, tuple[str, Callable[[Path, Path], None]]] = {
    "external-dns": (EXTERNAL_DNS_VERSION, build_external_dns),
    "etcd": (ETCD_VERSION, build_etcd),
    "kube-apiserver": (KUBERNETES_VERSION, build_kube_apiserver),
}


def program_path(name: str) -> Path:
    """Where `install` puts this program; it need not exist."""
    return tools_dir() / f"{name}-{PROGRAMS[name][0]}"


def install(name: str) -> Path:
    program = program_path(name)
    if os.access(program, os.X_OK):
        return program
    if shutil.which("go") is None:
        sys.exit(
            f"[install] cannot build {name}: `go` is not on PATH; install Go 1.25 or newer, or put {program} there"
        )
    say(f"building {name} {PROGRAMS[name][0]} (once per machine; minutes with a cold cache)")
    tools_dir().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=tools_dir(), prefix=f".{name}-") as work:
        built = Path(work) / f"built-{name}"
        PROGRAMS[name][1](Path(work), built)
        built.replace(program)  # never a half-written program under the final name
    return program


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", metavar="NAME", nargs="*", help=f"of {', '.join(PROGRAMS)}; default: all")
    parser.add_argument("--list", action="store_true", help="print where each program would be, build nothing")
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(PROGRAMS))
    if unknown:
        parser.error(f"unknown program {', '.join(unknown)}; known: {', '.join(PROGRAMS)}")
    for name in options.names or PROGRAMS:
        print(program_path(name) if options.list else install(name))


if __name__ == "__main__":
    main()
