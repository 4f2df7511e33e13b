"""The world of the controller's transcripts: that of the proxy, plus a controller that reads `manifests/`.

Its words are those of the proxy's world, and

    controlled    the controller runs, and everything is in order
    settled       the edits are reflected in the statuses
"""

from collections.abc import Sequence

from tests.proxy.site import eventually
from tests.support.daemon import Daemon
from tests.support.transcript_proxy_world import CONFIG_PORT, ProxyWorld
from tests.support.transcript_shell import WAIT_S

HEALTH_PORT, METRICS_PORT = "9081", "9080"


class ControllerWorld(ProxyWorld):
    _controller: Daemon | None = None

    def change(self, words: Sequence[str]) -> None:
        super().change(words)
        if "controlled" in words:
            self._start_controller()
        if "controlled" in words or "settled" in words:
            eventually(self._is_settled, "statuses are those of the manifests", WAIT_S)

    def _start_controller(self) -> None:
        proxy = f"http://127.0.0.1:{self._ports[CONFIG_PORT]}"
        source = ["--source", "directory", "--manifests", f"{self._env['HOME']}/manifests", "--proxy-endpoints", proxy]
        addresses = ["--health-addr", "127.0.0.1:0", "--metrics-addr", "127.0.0.1:0"]
        self._controller = controller = Daemon("tunnelgw", ["run", *source, *addresses], self._env).start()
        self._resources.callback(self._stop_controller)
        self._ports[HEALTH_PORT] = controller.address("health").rpartition(":")[2]
        self._ports[METRICS_PORT] = controller.address("metrics").rpartition(":")[2]

    def _stop_controller(self) -> None:
        if self._controller is not None:
            controller, self._controller = self._controller, None
            assert controller.stop() == 0, controller.tail

    def _is_settled(self) -> bool:
        """Whether no status is old or pending: the command reads the generations from the files."""
        rows = self.run("tunnelgw status --manifests manifests")
        return bool(rows) and not any(row.startswith(("old", "pending")) for row in rows)

    @property
    def _running(self) -> Daemon:
        assert self._controller is not None, "no controller runs in this set-up"
        return self._controller
