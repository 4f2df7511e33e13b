"""Watches the tunnel's token file: a token is renewed by writing the new one there."""

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
    """Calls `use` with each new, well-formed token."""

    def __init__(self, token: Secret, use: Callable[[Secret], None]) -> None:
        self._token = token
        self._use = use
        self._told = ""
        """The logged problem of the file; empty if none."""

    def watch(self, stop: threading.Event) -> None:
        """Thread target."""
        while not stop.wait(_PERIOD_S):
            try:
                if Path(self._token.path).is_fifo():
                    # It gives its token only once: reading it again would wait for a writer, and fail.
                    continue
                token = read_secret(self._token.path, "TUNNEL_TOKEN_FILE")
                if token != self._token:
                    TunnelToken.decode(token.reveal())
            except (MalformedToken, ValueError, OSError) as error:  # OSError: from `is_fifo`
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
