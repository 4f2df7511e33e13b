"""Run the simulator as a process: prints its URL as the first line, ends on SIGTERM or SIGINT."""

import argparse
import signal
from pathlib import Path

from tests.support.controller.admin import store_presets
from tests.support.controller.routes import Flavour
from tests.support.controller.rows import generated_drafts
from tests.support.controller.simulator import API_KEY, CERTIFICATE_NAMES, PASSWORD, USERNAME, Controller


def main() -> None:
    options = _parser().parse_args()
    controller = Controller(
        flavour=options.flavour,
        version=options.version,
        sites=options.site or ["default"],
        api_key=options.api_key,
        username=options.username,
        password=options.password,
        port=options.port,
        uses_tls=options.tls,
        certificate_names=tuple(options.certificate_name or CERTIFICATE_NAMES),
    )
    controller.latency_s = options.latency_s
    if options.rows:
        store_presets(controller, options.rows.read_bytes())
    controller.add_rows(generated_drafts(options.generate))
    # Blocked before any thread starts, so that every thread inherits it and the wait below gets the signal.
    ending = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ending)
    with controller:
        print(controller.url, flush=True)
        if controller.certificate:
            print(f"ca {controller.ca_pem_path}\nsha256 {controller.fingerprint_sha256}", flush=True)
        signal.sigwait(ending)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.support.controller", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="on 127.0.0.1; 0 lets the kernel choose (default)")
    parser.add_argument("--flavour", choices=[flavour.value for flavour in Flavour], default="unifi-os")
    parser.add_argument("--version", default="10.4.57", help="application version (default %(default)s)")
    parser.add_argument("--site", action="append", help="internal reference of a site; may be repeated")
    parser.add_argument("--api-key", default=API_KEY, help="default %(default)s")
    parser.add_argument("--username", default=USERNAME, help="default %(default)s")
    parser.add_argument("--password", default=PASSWORD, help="default %(default)s")
    parser.add_argument("--latency-s", type=float, default=0.0, help="seconds added to every call")
    parser.add_argument("--rows", type=Path, help="JSON file of rows to begin with, as POST /_sim/rows takes them")
    parser.add_argument("--generate", type=int, default=0, metavar="COUNT", help="A records to begin with")
    parser.add_argument("--tls", action="store_true", help="serve HTTPS; prints the CA file and the fingerprint")
    parser.add_argument("--certificate-name", action="append", help="name in the certificate; may be repeated")
    return parser


if __name__ == "__main__":
    main()
