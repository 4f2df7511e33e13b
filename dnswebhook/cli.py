"""The command `dnswebhook`. Its parts are imported only once interrupts are set up and the arguments are known."""

import signal

from daemonkit import interrupts, standardfiles


def main() -> None:
    interrupts.end_on_interrupt()
    standardfiles.open_missing()
    from daemonkit.options import load
    from dnswebhook.options import COMMANDS, DESCRIPTION, PREFIX, PROG, Options

    at_hangup = signal.getsignal(signal.SIGHUP)
    interrupts.ignore_hangup()
    command, options = load(Options, prog=PROG, prefix=PREFIX, description=DESCRIPTION, commands=COMMANDS)
    if command != "run":
        signal.signal(signal.SIGHUP, at_hangup)
    from dnswebhook import daemon

    daemon.main(command, options)
