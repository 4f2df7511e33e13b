"""What the daemon needs from the origin of its objects."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from daemonkit.secret import Secret
from tunnelgw.model.kinds import Kind
from tunnelgw.report.events import Recorder
from tunnelgw.sources.writing import Writer

Threads = list[tuple[str, Callable[[], None]]]


class Origin(Protocol):
    """A part of the daemon; its threads run until the daemon's `stop` is set."""

    @property
    def writer(self) -> Writer:
        """Writes statuses."""

    @property
    def recorder(self) -> Recorder | None:
        """Records Events; None: the origin has none."""

    def leads(self) -> bool:
        """Whether we may write because we lead; `on_leading` is called when that changes."""

    def threads(self) -> Threads: ...

    def token(self) -> Secret | None:
        """The token of the shared proxies' config APIs; may wait for it, or create it. Raises NoToken."""

    def drain(self) -> None:
        """End everything that waits, after the daemon's `stop` was set."""

    def give_way(self) -> None:
        """To be called when nothing of ours is in progress any more: after `stop`, another controller may write."""

    def stop(self) -> None: ...


class Listeners(NamedTuple):
    """Callbacks of an origin, called by threads of its own."""

    on_restart: Callable[[Kind], None]
    """A watch began again after a failure."""
    on_leading: Callable[[], None]
    """We have begun to lead, or stopped."""


class NoToken(Exception):
    """The controller cannot run; the message ends with what to do."""
