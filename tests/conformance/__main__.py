"""Run the suite; the last lines say how many tests passed, and the folder of --out holds all logs."""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from tests.conformance.namespace import NotPossible, entering, set_up
from tests.conformance.results import Summary, read_results
from tests.conformance.rig import CLASS, ENVIRONMENT, UNUSABLE_ADDRESS, USABLE_ADDRESS, ready_rig
from tests.kube.kubeenv import MissingProgram, find_program, find_programs
from tests.programs.install import CONFORMANCE_GATEWAY_API_VERSION

PROFILES = ("GATEWAY-HTTP", "GATEWAY-GRPC")
CORE = ("GRPCRoute", "Gateway", "HTTPRoute", "ReferenceGrant")
"""Features that the profiles ask of everybody. Without a choice: those that our GatewayClass claims."""
DEFAULT_OUT = Path(__file__).resolve().parents[2] / ".state" / "conformance"
NOT_POSSIBLE = 77
_IDENTITY = {
    "organization": "tunnelgw",
    "project": "tunnelgw",
    "url": "https://tunnelgw.dev",
    "version": "0.0.0",
    "contact": "@tunnelgw",
}
_TEST_TIMEOUT = "60m"


def main() -> int:
    options = _parser().parse_args()
    if not options.inside:
        try:
            for name in ("conformance", "conformance-crds"):
                find_program(name)
            find_programs()
            command = entering([sys.executable, "-m", "tests.conformance", "--inside", *sys.argv[1:]])
        except (MissingProgram, NotPossible) as lack:
            print(f"conformance: {lack}", file=sys.stderr)
            return NOT_POSSIBLE
        os.execvp(command[0], command)
    set_up()
    print(
        f"running the conformance suite of Gateway API {CONFORMANCE_GATEWAY_API_VERSION}: see {options.out}", flush=True
    )
    summary = _run(options)
    for name in (*summary.failed, *summary.failed_cases):
        print(f"FAIL {name}")
    if not summary.is_quiet:
        print("somebody goes on writing to the API server although nothing happens: see controller.log and node.log")
    print(f"{len(summary.passed)} passed, {len(summary.failed)} failed, {len(summary.skipped)} skipped", end=" ")
    print(f"in {summary.duration_s:.0f} s (Gateway API {summary.suite}); see {options.out}")
    return 0 if summary.is_success else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--core", action="store_true", help="only what every implementation of the profiles must pass")
    choice.add_argument("--test", metavar="NAME", help="one test by its short name, claimed or not")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="folder for logs (default %(default)s)")
    parser.add_argument("--parallel", type=int, default=4, help="how many tests at a time (default %(default)s)")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("flags", nargs="*", metavar="FLAG", help="of the suite, after --")
    return parser


def _run(options: argparse.Namespace) -> Summary:
    out: Path = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    for log in out.glob("*.log"):
        log.unlink()
    programs = find_program("conformance")
    with ready_rig(out, find_programs(), programs / "node") as rig:
        began_s = time.monotonic()
        log = out / "suite.log"
        with log.open("wb") as output:
            exit_code = subprocess.run(
                [str(programs / "suite"), *_flags(options, out)],
                env={**ENVIRONMENT, "KUBECONFIG": str(rig.kubeconfig)},
                cwd=out,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            ).returncode
        summary = read_results(log, CONFORMANCE_GATEWAY_API_VERSION, exit_code, time.monotonic() - began_s)
        summary.is_quiet, summary.status_writes = rig.is_quiet(), rig.status_writes()
    (out / "summary.json").write_bytes(msgspec.json.format(msgspec.json.encode(summary), indent=1) + b"\n")
    if exit_code and not summary.failed:
        print(log.read_text(errors="replace")[-4000:])
    return summary


def _flags(options: argparse.Namespace, out: Path) -> list[str]:
    flags = {
        "gateway-class": CLASS,
        "conformance-profiles": ",".join(PROFILES),
        "usable-address": USABLE_ADDRESS,
        "unusable-address": UNUSABLE_ADDRESS,
        "cleanup-base-resources": "false",
        "report-output": str(out / "report.yaml"),
        **_IDENTITY,
    }
    if options.core:
        flags["supported-features"] = ",".join(CORE)
    if options.test:
        flags["run-test"] = options.test
    return [
        "-test.v=test2json",
        f"-test.timeout={_TEST_TIMEOUT}",
        f"-test.parallel={options.parallel}",
        "-test.run=TestConformance",
        *(f"--{name}={value}" for name, value in flags.items()),
        *options.flags,
    ]


if __name__ == "__main__":
    sys.exit(main())
