"""Limits on frames that are cheap to send and costly to handle: floods, rapid resets, dribbles.

Each kind of frame that makes work without advancing a message is counted over a time window. Exceeding a limit is a
connection error ENHANCE_YOUR_CALM. Honest traffic raises some limits:

- Each DATA frame that we send allows a PING (bandwidth estimation), window updates, and an ignored frame: once OkHttp
  has given up a stream, it answers all that still arrives on it, which may be megabytes, with resets.
- Each response that we begin allows the peer to reset another stream: one connection of a Go program or a load balancer
  has many callers, whose deadlines pass. The rapid reset attack does not wait for responses. DATA frames do not count
  for this: a peer gets any number of them by opening its window a little each time.

The limits are far above what clients were seen to need. A trusted peer with thousands of streams, such as the tunnel's
edge, gets wider ones.
"""

from dataclasses import dataclass
from enum import IntEnum

from proxy.h2.errors import ErrorCode, RemoteProtocolError


@dataclass(frozen=True, slots=True)
class Limits:
    """Frames in one window of `window_s` seconds, unless a comment says otherwise."""

    window_s: float = 10.0
    # Rapid reset, CVE-2023-44487: streams that the peer opened and reset.
    max_resets: int = 1_000
    # Streams that we had to reset or refuse, since a peer can make us reset its streams too (CVE-2025-8671). Responses
    # to requests of ours do not count.
    max_stream_errors: int = 200
    # CVE-2019-9512, CVE-2019-9515: each demands an answer.
    max_pings: int = 10_000
    max_settings: int = 100
    # CVE-2019-9518: DATA without bytes that does not end its stream.
    max_empty_data: int = 1_000
    max_window_updates: int = 10_000
    # PRIORITY, unknown frame types, acknowledgements, and frames for streams that are gone.
    max_ignored: int = 10_000
    # CVE-2019-9511: DATA frames of less than 256 bytes that we sent because a window had no room for more.
    max_dribbles: int = 1_000
    # In one field block, CVE-2024-27316: at 16 KiB each they hold any list within bounds.
    max_continuations: int = 16
    # 1xx responses on one stream, as for HTTP/1.1; together they may be as large as one field list.
    max_interim: int = 32
    # Field blocks before the peer acknowledges our SETTINGS, which it receives before any response of ours.
    max_blocks_before_ack: int = 1_000


class Flood(IntEnum):
    """What is counted; the values index the tables below."""

    RESET = 0
    STREAM_ERROR = 1
    PING = 2
    SETTINGS = 3
    EMPTY_DATA = 4
    WINDOW_UPDATE = 5
    IGNORED = 6
    DRIBBLE = 7


# How many frames of a kind the peer may send for each DATA frame of ours.
EARNED = {Flood.PING: 1, Flood.WINDOW_UPDATE: 10, Flood.IGNORED: 1}
# The same for each response that we begin, with or without a body.
EARNED_BY_ANSWERS = {Flood.RESET: 1}
# The same for each stream that our caller resets, or whose response is malformed: 256 KiB of its body may be in flight,
# which Netty sends in frames of 1 KiB.
EARNED_BY_RESETS = {Flood.IGNORED: 256}
DRIBBLE_BYTES = 256


class FloodGuard:
    """The counts of one connection. Those without underscore are counted by the sending side."""

    __slots__ = (
        "_counts",
        "_limits",
        "_renew_at_s",
        "_window_s",
        "answers_sent",
        "data_frames_sent",
        "dribbles_sent",
        "resets_sent",
    )

    def __init__(self, limits: Limits) -> None:
        self._limits = (
            limits.max_resets,
            limits.max_stream_errors,
            limits.max_pings,
            limits.max_settings,
            limits.max_empty_data,
            limits.max_window_updates,
            limits.max_ignored,
            limits.max_dribbles,
        )
        self._window_s = limits.window_s
        self._renew_at_s = 0.0
        self._counts = [0] * len(Flood)
        self.answers_sent = self.data_frames_sent = self.dribbles_sent = self.resets_sent = 0

    def renew(self, now_s: float) -> None:
        if now_s >= self._renew_at_s:
            self._renew_at_s = now_s + self._window_s
            self._counts = [0] * len(Flood)
            self.answers_sent = self.data_frames_sent = self.dribbles_sent = self.resets_sent = 0

    def count(self, flood: Flood) -> None:
        self._counts[flood] += 1
        self._want_calm(flood, self._counts[flood])

    @property
    def is_dribbled(self) -> bool:
        """More than half of the limit has been sent, so the caller should avoid more."""
        return 2 * self.dribbles_sent > self._limits[Flood.DRIBBLE]

    def check_dribbles(self) -> None:
        self._want_calm(Flood.DRIBBLE, self.dribbles_sent)

    def _want_calm(self, flood: Flood, count: int) -> None:
        limit = self._limits[flood]
        if count <= limit:
            return
        limit += EARNED.get(flood, 0) * self.data_frames_sent + EARNED_BY_RESETS.get(flood, 0) * self.resets_sent
        limit += EARNED_BY_ANSWERS.get(flood, 0) * self.answers_sent
        if count > limit:
            reason = f"{flood.name} {count} times in {self._window_s:g} s, want at most {limit}"
            raise RemoteProtocolError(ErrorCode.ENHANCE_YOUR_CALM, reason)
