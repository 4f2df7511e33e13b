"""The shutdown delay: when the proxy stops, load balancers get time to notice before the doors close."""

import time

from proxy.supervisor.configuration import Configuration


class ShutdownDelay:
    """A `Service`, registered last so that it drains first, while the workers still accept everything.

    Readiness is already false. During the delay, load balancers switch to other proxies. Then our copies of the
    listening sockets are closed, so that the sockets really close when the workers have emptied and closed theirs.
    """

    def __init__(self, configuration: Configuration, delay_s: float) -> None:
        self._configuration = configuration
        self._delay_s = delay_s

    def start(self) -> None:
        """Nothing to do: doors open with the first document."""

    def drain(self, deadline_s: float) -> None:
        time.sleep(max(0.0, min(self._delay_s, deadline_s - time.monotonic())))
        self._configuration.close_sockets()

    def stop(self) -> None:
        self._configuration.close_sockets()
