"""One thread at a time runs a credential plugin, which may take minutes or never end."""

import threading

from tunnelgw.sources.kubernetes.failures import Unreachable


class PluginLock:
    """A lock for what may run a plugin: entering it raises Unreachable after `wait_s`, or at once after `end`."""

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._changed = threading.Condition()
        self._is_taken = False
        self._is_over = False

    def end(self) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def __enter__(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._is_taken or self._is_over, self._wait_s)
            if self._is_over:
                raise Unreachable("no access to a cluster: interrupted")
            if self._is_taken:
                raise Unreachable(
                    f"no access to a cluster: getting credentials takes longer than {self._wait_s:g} s, as a plugin of "
                    "the kubeconfig does that waits for somebody to log in"
                )
            self._is_taken = True

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._is_taken = False
            self._changed.notify()
