"""`tunnelgw-proxy explain`: by which doors a request can arrive, and what would be done with it at each."""

import argparse
import ipaddress
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import idna
import msgspec

from daemonkit.logformat import one_line
from daemonkit.urls import split_url
from proxy import document
from proxy.commands.check import judge
from proxy.commands.explainview import draw, lines_of
from proxy.commands.report import report_of
from proxy.commands.sources import SourceError
from proxy.document import DocumentError
from proxy.doors.networks import networks_of, plain_address
from proxy.exchange.client import Arrival
from proxy.exchange.forwarding import Forwarding
from proxy.heads import TOKEN, Fields, RequestHead
from proxy.routing import (
    TUNNEL_HTTP,
    TUNNEL_HTTPS,
    Listener,
    PlainHead,
    Table,
    TableBuilder,
    compile_table,
    socket_door,
)
from proxy.routing import explain as explain_request

STRANGER = "192.0.2.1"
"""The client if none is named: an address for examples (RFC 5737), which nobody has."""
_DEFAULT_PORTS = {"http": 80, "https": 443}
_TUNNEL = (TUNNEL_HTTP, TUNNEL_HTTPS)
_NEW_ID = b"000000000000-1"


def add_request(parser: argparse.ArgumentParser, listener: str) -> None:
    """The arguments for `Question.asked`. METHOD may be left out, so parse them with `parse_intermixed_args`.
    `listener`: the help for that option."""
    parser.add_argument("--listener", metavar="NAME", help=listener)
    parser.add_argument(
        "--client",
        metavar="ADDRESS",
        default=STRANGER,
        help="the address that connects to a direct listener, of a client or of a trusted proxy; default: %(default)s",
    )
    parser.add_argument(
        "-H", "--header", action="append", default=[], metavar="'NAME: VALUE'", help="a header field; may be repeated"
    )
    parser.add_argument("-X", "--method", dest="flag", metavar="METHOD", help="the method, as with curl")
    parser.add_argument("method", nargs="?", metavar="METHOD", help="the same without -X; default: GET")
    parser.add_argument("url", metavar="URL", help="as a client would write it: https://shop.example/cart?page=2")


@dataclass(frozen=True)
class Question:
    """The request to explain."""

    scheme: str
    port: int
    """The port that the client connects to."""
    head: PlainHead
    listener: str | None
    """The only listener to consider; None: all that fit."""
    client: str = STRANGER
    """The address that connects to a direct listener, which may be one of the document's trusted proxies."""

    @classmethod
    def asked(cls, found: argparse.Namespace) -> "Question":
        """Raises SourceError."""
        method, *more = [each for each in (found.flag, found.method) if each is not None] or ["GET"]
        if more:
            raise SourceError(f"seen two methods, {method!r} after -X and {more[0]!r}; want one")
        return cls.parse(method, found.url, found.header, found.listener, found.client)

    @classmethod
    def parse(
        cls, method: str, url: str, headers: Sequence[str], listener: str | None, client: str = STRANGER
    ) -> "Question":
        """Raises SourceError."""
        _check_method(method)
        try:
            client = plain_address(ipaddress.ip_address(client))
        except ValueError:
            raise SourceError(f"seen client {client!r}, want an IP address") from None
        try:
            parts = split_url(url)
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
        return cls(parts.scheme, port or _DEFAULT_PORTS[parts.scheme], head, listener, client)


class _Sender:
    """The question's client, or the edge at a door of the tunnel; see `routing.Sender`."""

    def __init__(self, table: Table, door: str, question: Question) -> None:
        self._forwarding = Forwarding(table.settings.forwarding)
        self._door = door
        self._question = question
        self._is_edge = door in _TUNNEL
        trusted = networks_of(table.settings.forwarding.trusted_proxies)
        self.is_trusted = self._is_edge or trusted.contain(question.client)

    def forwarded_fields(self, listener: Listener) -> Fields:
        scheme, plain = listener.scheme, self._question.head
        head = RequestHead(plain.method, scheme, plain.authority, plain.path, list(plain.fields))
        given = self._forwarding.request_id_of(head) if self.is_trusted else None
        arrival = Arrival(self._door, scheme, self._question.client, "HTTP/1.1", self.is_trusted, is_edge=self._is_edge)
        return self._forwarding.request_fields(arrival, listener, head, given or _NEW_ID)


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
        report_of(explain_request(table, door, question.head, time.time(), _Sender(table, door, question)))
        for door in _doors_for(table, question)
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
