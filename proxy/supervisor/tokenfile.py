"""The file of the tunnel's token, looked at again and again: a token is renewed by writing it there."""

import threading
from collections.abc import Callable
from pathlib import Path

from daemonkit.logs import get_logger
from daemonkit.optionsources import read_secret
from daemonkit.secret import Secret
from proxy.tunnel.token import MalformedToken, TunnelToken

log = get_logger(__name__)

_PERIOD_S = 2.0


class TokenFile:
    """`use` is called with each new token that is well-formed."""

    def __init__(self, token: Secret, use: Callable[[Secret], None]) -> None:
        self._token = token
        self._use = use
        self._told = ""
        """What is wrong with the file, as it was logged."""

    def watch(self, stop: threading.Event) -> None:
        """A thread."""
        while not stop.wait(_PERIOD_S):
            try:
                if Path(self._token.path).is_fifo():
                    # It gives its token once: opened again, it would keep this thread until somebody writes.
                    continue
                token = read_secret(self._token.path, "TUNNEL_TOKEN_FILE")
                if token != self._token:
                    TunnelToken.decode(token.reveal())
            except (MalformedToken, ValueError, OSError) as error:  # the last: of the look at the path
                self._tell(str(error))
                continue
            self._told = ""
            if token != self._token:
                self._token = token
                log.info("tunnel token has changed, connections register again one by one", path=token.path)
                self._use(token)

    def _tell(self, error: str) -> None:
        if error != self._told:
            self._told = error
            log.error("cannot use the tunnel token file, the previous token stays in use", error=error)
