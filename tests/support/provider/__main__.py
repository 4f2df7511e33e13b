"""Run the provider as a process: prints its base URL as the first line, ends on SIGTERM or SIGINT."""

import argparse
import signal

from tests.support.provider.provider import ACCOUNT_ID, TOKEN, TUNNEL_ID, Provider


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.support.provider", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="on 127.0.0.1; 0 lets the kernel choose (default)")
    parser.add_argument("--account", default=ACCOUNT_ID, help="id of the account (default %(default)s)")
    parser.add_argument("--tunnel", default=TUNNEL_ID, help="id of its tunnel (default %(default)s)")
    options = parser.parse_args()
    # Blocked before any thread starts, so that every thread inherits it and the wait below gets the signal.
    ending = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ending)
    with Provider(options.port, options.account, options.tunnel) as provider:
        print(provider.url, flush=True)
        print(f"account {options.account}\ntunnel {options.tunnel}\ntoken {TOKEN}", flush=True)
        signal.sigwait(ending)


if __name__ == "__main__":
    main()
