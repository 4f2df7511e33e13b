"""The command `dnswebhook`. What it does is imported when it is settled how it may be ended."""

from daemonkit import interrupts, standardfiles


def main() -> None:
    interrupts.end_on_interrupt()
    standardfiles.open_missing()
    from dnswebhook import daemon

    daemon.main()
