"""A controller's flavour and API, decided once, and the small file that keeps the decision across restarts.

The file lets `capabilities()` answer after a restart while the controller is down. It is bound to the base URL,
replaced atomically, and readable only by its owner. It is trusted for nothing else: the first listing asks the
controller again.
"""

from pathlib import Path

import msgspec

from daemonkit.filereading import read_regular
from daemonkit.logs import get_logger
from daemonkit.statefile import replace_file
from dnswebhook.stores.unifi.address import Flavour
from dnswebhook.stores.unifi.settings import ApiChoice, UnifiSettings

log = get_logger(__name__)

_FILE_NAME = "unifi-api.json"
_MAX_BYTES = 64 * 1024


class Decision(msgspec.Struct, frozen=True):
    flavour: Flavour
    api: ApiChoice
    """Never `auto`."""
    version: str = ""
    """Version of the Network application; empty if the controller does not report it."""

    def contradicts(self, settings: UnifiSettings) -> bool:
        flavour = settings.known_flavour
        is_other_api = settings.api is not ApiChoice.AUTO and settings.api is not self.api
        needs_key = self.api is ApiChoice.INTEGRATION and not settings.api_key
        return self.api is ApiChoice.AUTO or is_other_api or needs_key or flavour not in (None, self.flavour)


def decision_of_settings(settings: UnifiSettings) -> Decision | None:
    """The decision, if the settings leave nothing to detect."""
    flavour = settings.known_flavour
    if settings.api is ApiChoice.AUTO and (settings.user or flavour is Flavour.CLASSIC):
        # The integration API accepts only keys, and exists only on consoles.
        return None if flavour is None else Decision(flavour, ApiChoice.V2)
    if settings.api is ApiChoice.AUTO or flavour is None:
        return None
    return Decision(flavour, settings.api)


class _Remembered(msgspec.Struct, frozen=True):
    base_url: str
    decision: Decision


class DecisionFile:
    def __init__(self, settings: UnifiSettings) -> None:
        self._settings = settings
        self._path: Path | None = settings.state_dir / _FILE_NAME if settings.state_dir else None

    def load(self) -> Decision | None:
        """None if there is no saved decision, or none that fits these settings."""
        if self._path is None:
            return None
        try:
            remembered = msgspec.json.decode(read_regular(self._path, _MAX_BYTES), type=_Remembered)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            log.warning("saved controller API cannot be read, asking the controller", error=error, path=str(self._path))
            return None
        is_same = remembered.base_url == self._settings.address.base_url
        return None if not is_same or remembered.decision.contradicts(self._settings) else remembered.decision

    def save(self, decision: Decision) -> None:
        """A failure is only logged: the decision then lasts as long as the process."""
        if self._path is None:
            return
        content = msgspec.json.encode(_Remembered(self._settings.address.base_url, decision))
        try:
            replace_file(self._path, content)
        except OSError as error:
            log.warning("the controller's API cannot be saved", error=error, path=str(self._path))
