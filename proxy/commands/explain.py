"""`tunnelgw-proxy explain`: by which doors a request can arrive, and what would be done with it at each."""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import idna
import msgspec

from daemonkit.logformat import one_line
from proxy import document
from proxy.commands.check import judge
from proxy.commands.explainview import draw, lines_of
from proxy.commands.report import report_of
from proxy.commands.sources import SourceError
from proxy.document import DocumentError
from proxy.heads import TOKEN
from proxy.routing import TUNNEL_HTTP, TUNNEL_HTTPS, PlainHead, Table, TableBuilder, compile_table, socket_door
from proxy.routing import explain as explain_request

_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Question:
    """The request to explain."""

    scheme: str
    port: int
    """The port that the client connects to."""
    head: PlainHead
    listener: str | None
    """The only listener to consider; None: all that fit."""

    @classmethod
    def parse(cls, method: str, url: str, headers: Sequence[str], listener: str | None) -> "Question":
        """Raises SourceError."""
        _check_method(method)
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise SourceError(f"seen URL {url!r}: {error}") from error
        if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
            raise SourceError(f"seen URL {url!r}, want one such as https://shop.example/cart")
        fields: list[tuple[bytes, bytes]] = []
        authority = _octets(_as_sent(parts.netloc.rpartition("@")[2]))
        for header in headers:
            name, colon, value = header.partition(":")
            if not colon or not name.strip():
                raise SourceError(f"seen header field {header!r}, want 'name: value'")
            if name.strip().lower() == "host":
                authority = _octets(value.strip())
            else:
                fields.append((_octets(name.strip().lower()), _octets(value.strip())))
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        head = PlainHead(method.encode(), authority, _octets(path), tuple(fields))
        return cls(parts.scheme, port or _DEFAULT_PORTS[parts.scheme], head, listener)


def _check_method(method: str) -> None:
    if not TOKEN.fullmatch(_octets(method)):
        raise SourceError(f"seen method {method!r}, want one word such as GET")
    if method == "CONNECT":
        raise SourceError(
            "CONNECT is always answered with 501, except for a WebSocket over HTTP/2, which is routed as "
            "GET: ask about that"
        )


def _octets(argument: str) -> bytes:
    """As they were typed: those that are not UTF-8 are surrogates in Python's arguments."""
    return argument.encode(errors="surrogateescape")


def _as_sent(authority: str) -> str:
    """Convert an internationalized name as clients do (RFC 5891): `xn--...`."""
    if authority.isascii():
        return authority
    host, colon, port = authority.partition(":")
    try:
        return idna.encode(host, uts46=True).decode() + colon + port
    except idna.IDNAError as error:
        raise SourceError(f"seen host {host!r}, which is not a host name: {error}") from error


def explain(data: bytes, question: Question, *, as_json: bool) -> bool:
    """Print the explanation. Returns whether a route would serve the request at every door by which it can arrive."""
    table = _table_of(data)
    reports = [
        report_of(explain_request(table, door, question.head, time.time())) for door in _doors_for(table, question)
    ]
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(reports), indent=2).decode() + "\n")
    elif sys.stdout.isatty():
        for report in reports:
            draw(report)
    else:
        sys.stdout.write("\n".join(line for report in reports for line in lines_of(report)) + "\n")
    return all(report.is_routed for report in reports)


def _table_of(data: bytes) -> Table:
    """The routing table of a complete document, or of one from a running proxy, whose private keys are redacted."""
    try:
        is_redacted = b"<redacted sha256:" in data
        if not is_redacted:
            return compile_table(document.decode(data))
        outline = document.decode_outline(data)
        builder = TableBuilder(document.settings_of(outline))
        builder.put_backends(map(document.decode_backend, outline.backends))
        builder.add_routes((place, place, document.decode_route(raw)) for place, raw in enumerate(outline.routes))
    except (msgspec.MsgspecError, DocumentError, UnicodeDecodeError, RecursionError) as error:
        problems = judge("", data).problems
        raise SourceError(
            "\n".join(["the document is refused:", *(one_line(str(problem)) for problem in problems)])
        ) from error
    return builder.finish()


def _doors_for(table: Table, question: Question) -> list[str]:
    """The doors for a client that uses this scheme and port. Raises SourceError if there is none."""
    listeners = table.settings.listeners
    tunnel = TUNNEL_HTTPS if question.scheme == "https" else TUNNEL_HTTP
    if question.listener is not None:
        listener = _named(question.listener, listeners)
        return [socket_door(listener.address, listener.port) if listener.port else tunnel]
    doors: dict[str, None] = {}
    for listener in listeners:
        is_spoken = listener.protocol.lower() == question.scheme
        if listener.port and is_spoken and question.port in (listener.visible_port, listener.port):
            doors[socket_door(listener.address, listener.port)] = None
    if tunnel in table.doors and question.port == _DEFAULT_PORTS[question.scheme]:
        doors[tunnel] = None
    if not doors:
        known = (
            ", ".join(f"{one.name} ({one.protocol.lower()}, port {one.visible_port})" for one in listeners) or "none"
        )
        raise SourceError(
            f"no listener takes {question.scheme} on port {question.port}; the document's listeners: {known}; "
            "name one with --listener"
        )
    return list(doors)


def _named(name: str, listeners: Sequence[document.Listener]) -> document.Listener:
    """Raises SourceError if there is none."""
    for listener in listeners:
        if listener.name == name:
            return listener
    known = ", ".join(listener.name for listener in listeners) or "none"
    raise SourceError(f"the document has no listener {name!r}; its listeners: {known}")
