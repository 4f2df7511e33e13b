"""What the daemon wants of where its objects come from."""

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
        """Of statuses."""

    @property
    def recorder(self) -> Recorder | None:
        """Of Events; None where there are none."""

    def leads(self) -> bool:
        """Whether we may write, as other controllers do not; `on_leading` is told when that changes."""

    def threads(self) -> Threads: ...

    def token(self) -> Secret | None:
        """Of the shared proxies' config APIs; may wait, and make it. Raises NoToken."""

    def drain(self, deadline_s: float) -> None: ...

    def give_way(self) -> None:
        """Nothing of ours is under way any more: another controller may write from `stop` on."""

    def stop(self) -> None: ...


class Listeners(NamedTuple):
    """What an origin tells, from threads of its own."""

    on_restart: Callable[[Kind], None]
    """A watch began again after a failure."""
    on_leading: Callable[[], None]
    """Another controller leads now, or we do."""


class NoToken(Exception):
    """The controller cannot run; the message ends with the remedy."""
