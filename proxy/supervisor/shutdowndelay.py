"""How traffic is turned away when the proxy stops: first other people notice, then our doors close."""

import time

from proxy.supervisor.configuration import Configuration


class ShutdownDelay:
    """A `Service`; registered last, so that it drains first, while the workers still take everything.

    Readiness is false already. The shutdown delay passes, in which load balancers look for other proxies; then our
    copies of the listening sockets are closed, so that what the workers empty and close stays closed.
    """

    def __init__(self, configuration: Configuration, delay_s: float) -> None:
        self._configuration = configuration
        self._delay_s = delay_s

    def start(self) -> None:
        """Doors open when documents come."""

    def drain(self, deadline_s: float) -> None:
        time.sleep(max(0.0, min(self._delay_s, deadline_s - time.monotonic())))
        self._configuration.close_sockets()

    def stop(self) -> None:
        self._configuration.close_sockets()
