"""The last good document on disk, so that a restarted proxy serves before anyone has told it what."""

from pathlib import Path

from daemonkit.logs import get_logger
from daemonkit.statefile import replace_file

log = get_logger(__name__)

NAME = "document.json"


class StateFile:
    """Mode 0600, replaced as a whole. A disk that fails costs a warning, never the traffic."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / NAME

    def read(self) -> bytes | None:
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            log.warning(
                "cannot read the state directory, starting without its document", error=error, path=str(self._path)
            )
            return None

    def write(self, content: bytes) -> None:
        try:
            replace_file(self._path, content)
        except OSError as error:
            log.warning(
                "cannot keep the document: after a restart there is none until it is sent again",
                error=error,
                path=str(self._path),
            )
