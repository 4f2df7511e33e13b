"""Events as plain values, so that dialogues can be compared: data of one body is one piece, however it came."""

from proxy.h1 import (
    ClientConnection,
    ConnectionTerminated,
    DataReceived,
    Event,
    Http2PrefaceReceived,
    InformationalReceived,
    RequestReceived,
    ResponseReceived,
    ServerConnection,
    TrailersReceived,
)
from proxy.heads import Fields

Line = tuple[object, ...]
END = ("end",)


def transcript(events: list[Event]) -> list[Line]:
    lines: list[Line] = []
    for event in events:
        line = _line(event)
        if line[0] == "data" and lines and lines[-1][0] == "data":
            line = ("data", bytes(lines.pop()[1]) + bytes(line[1]))  # type: ignore[call-overload]
        if line != ("data", b""):
            lines.append(line)
        if getattr(event, "end_stream", False):
            lines.append(END)
    return lines


def _line(event: Event) -> Line:
    match event:
        case RequestReceived(head=head):
            return ("request", head.method, head.authority, head.path, head.fields)
        case InformationalReceived(head=head):
            return ("informational", head.status_code, head.fields)
        case ResponseReceived(head=head):
            return ("response", head.status_code, head.fields)
        case DataReceived(data=data):
            return ("data", bytes(data))
        case TrailersReceived(fields=fields):
            return ("trailers", fields)
        case Http2PrefaceReceived(data=data):
            return ("http2", data)
        case ConnectionTerminated(status_code=status_code):
            return ("terminated", status_code)
    raise AssertionError(f"unknown event {event!r}")


def request(method: bytes, authority: bytes, path: bytes, fields: Fields | None = None) -> Line:
    return ("request", method, authority, path, fields or [])


def receive_in_pieces(codec: ServerConnection | ClientConnection, raw: bytes, cuts: list[int]) -> list[Line]:
    """Give `raw` to `codec`, cut at the offsets `cuts`."""
    events: list[Event] = []
    start = 0
    for end in [*sorted(cuts), len(raw)]:
        events += codec.receive(raw[start:end])
        start = end
    return transcript(events)


def three_ways(raw: bytes) -> list[list[int]]:
    """Cuts: none, everywhere, and one in the middle."""
    return [[], list(range(1, len(raw))), [len(raw) // 2]]
