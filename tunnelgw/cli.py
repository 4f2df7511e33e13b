"""The command `tunnelgw`: says what this release holds."""

import argparse
import sys

import daemonkit


def main() -> None:
    """Exit code 1: there is nothing to run yet."""
    parser = argparse.ArgumentParser(prog="tunnelgw", description="The Gateway API controller.")
    parser.add_argument("--version", action="version", version=f"%(prog)s {daemonkit.__version__}")
    parser.parse_args()
    sys.exit(
        f"tunnelgw: release {daemonkit.__version__} holds the DNS webhook only (run `dnswebhook --help`); "
        "the Gateway API controller is not part of it yet, see CHANGELOG.md"
    )
