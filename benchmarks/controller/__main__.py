"""`make bench-controller`: measure the controller against a real API server, with the real proxy behind it.

The tunnel provider is simulated. Prints a table and writes the same figures to benchmarks/results/. Nothing is judged
here; docs/performance.md says what the numbers mean.
"""

import argparse
import os
import platform
import sys

from benchmarks import comparison
from benchmarks.comparison import Row
from benchmarks.controller import figures
from benchmarks.controller.measure import Plan, Values, measure
from benchmarks.controller.world import opened
from tests.kube.kubeenv import MissingProgram, find_program, find_programs

FULL = Plan((100, 1_000, 10_000), edits=100, bursts=(200, 1_000), churn_rates=(50, 100), churn_s=10, idle_s=30)
QUICK = Plan((100, 1_000), edits=20, bursts=(200,), churn_rates=(50,), churn_s=3, idle_s=5)
PARTS = ("edits", "bursts", "churn", "idle")


def main() -> None:
    options = _parser().parse_args()
    try:
        find_programs()
        find_program("gateway-api-crds")
    except MissingProgram as missing:
        sys.exit(f"benchmarks.controller: {missing}")
    plan = QUICK if options.quick else FULL
    print(f"{os.cpu_count()} CPUs, Python {platform.python_version()}\n", flush=True)
    cases: dict[int, Values] = {}
    with opened() as world:
        for routes in options.routes or plan.sizes:
            print(f"{routes:,} routes ...", file=sys.stderr, flush=True)
            cases[routes] = measure(plan, world, routes, tuple(options.only or PARTS))
    figures.show(cases)
    rows = [Row(f"{routes:,} routes", "tunnelgw", values) for routes, values in cases.items()]
    print(f"written: {comparison.write('controller', {'The controller': rows}, plan)}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.controller", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer routes, shorter runs: does it work at all?")
    parser.add_argument("--only", action="append", choices=PARTS, help="the start and only this; may be repeated")
    parser.add_argument("--routes", action="append", type=int, help="only with so many; may be repeated")
    return parser


if __name__ == "__main__":
    main()
