"""What Ctrl-C does before a daemon takes its signals, and to commands for people."""

import signal


def end_on_interrupt() -> None:
    """At once, as SIGTERM does until a daemon takes both: a stack trace tells whoever interrupts nothing."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
