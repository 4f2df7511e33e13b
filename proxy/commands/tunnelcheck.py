"""`tunnelgw-proxy tunnel-check`: tries every step from the token to a registration, and suggests a remedy for failures.

It takes the options and variables of `run`. Only registering has an effect: the edge may then send requests, so it is
tried only with --register, and undone at once.
"""

import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from daemonkit import logs
from daemonkit.options import BadOptions, parse
from proxy.doors.terms import Caches
from proxy.exchange.client import ClientExchange, ClientStream
from proxy.heads import RequestHead
from proxy.loop import Loop
from proxy.options import PREFIX, PROG, Options
from proxy.stats import Stats
from proxy.supervisor.edgefinder import edge_finder
from proxy.supervisor.edgetrust import TrustUnavailable, edge_trust
from proxy.tunnel.addresses import EdgeAddress, Region
from proxy.tunnel.dialling import problem_of_source
from proxy.tunnel.discovery import DiscoveryFailed, check_version
from proxy.tunnel.failures import FailureCause
from proxy.tunnel.links import Links
from proxy.tunnel.orders import Dial, DialMeans, EdgeReport, Ended, Pushed, PushTaken, Reached, Registered, Withdraw
from proxy.tunnel.packetsize import BlackHole
from proxy.tunnel.refused import REFUSED
from proxy.tunnel.remoteconfig import NO_VERSION
from proxy.tunnel.responses import FAILURE_HEAD
from proxy.tunnel.token import MalformedToken, TunnelToken

REGISTER: Final = "--register"
_DIAL_TIMEOUT_S: Final = 40.0
_HELP: Final = f"""usage: {PROG} tunnel-check [{REGISTER}] [options of `{PROG} run`]

Try each step of connecting a tunnel: the token, the addresses of the edge, its root certificates, TCP and TLS to each
address. With {REGISTER}, also register and unregister once; requests that the edge sends in between are answered with
502.
"""
_REMEDIES: Final = {
    FailureCause.DIAL: "allow outgoing TCP connections to this address (firewall, network policy, routes); if only one "
    "IP version fails, select the other with --edge-ip-version",
    FailureCause.TLS: "a proxy on the way may intercept TLS: exempt this address; for a private edge, give its CA with "
    "--edge-ca-file; if TLS was not set up in time, full-size packets may be lost on the way: "
    "sysctl -w net.ipv4.tcp_mtu_probing=1, or a smaller MTU",
    FailureCause.SILENT: "what accepts connections there is not an edge: check --edge, and proxies on the way",
    FailureCause.DUPLICATE: "harmless: the edge already has this connection",
    FailureCause.UNAUTHORIZED: "the token is refused: check that the tunnel still exists, and copy its token again",
    FailureCause.REFUSED: "see what the edge says; most such refusals go away by themselves",
    FailureCause.EXCEPTION: "the edge has a problem of its own: try again later",
    FailureCause.MALFORMED: "what answers does not speak the edge's protocol: check --edge, and proxies on the way",
    FailureCause.LOST: "try again; if it happens again, check --edge, and proxies on the way",
}


def check_tunnel(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Returns the exit code: 0 if all is well, 1 if something failed, 2 for bad options."""
    if {"-h", "--help"} & set(arguments):
        sys.stdout.write(_HELP)
        return 0
    given = [argument for argument in arguments if argument != REGISTER]
    try:
        _, options = parse(Options, prefix=PREFIX, argv=given, environ=environ)
    except BadOptions as bad:
        sys.stderr.write("".join(f"{PROG} tunnel-check: {problem.text}\n" for problem in bad.problems))
        return 2
    logs.setup(options.log_level, "text")
    is_well = True
    for step_is_well, step, text in _steps(options, registers=REGISTER in arguments):
        is_well = is_well and step_is_well
        sys.stdout.write(f"{'ok  ' if step_is_well else 'FAIL'}  {step:<12}  {text}\n")
        sys.stdout.flush()
    return 0 if is_well else 1


Step = tuple[bool, str, str]
"""Whether it succeeded, its name, and the text to print."""


def _steps(options: Options, *, registers: bool) -> Iterator[Step]:
    if options.tunnel_token is None:
        yield False, "token", "no token: set TUNNEL_TOKEN or TUNNEL_TOKEN_FILE"
        return
    try:
        token = TunnelToken.decode(options.tunnel_token.reveal())
    except MalformedToken as error:
        yield False, "token", str(error)
        return
    yield True, "token", f"tunnel {token.tunnel_id}, account {token.account_tag}, region {token.endpoint or 'global'}"
    version, source = options.edge_version, options.edge_bind_address or ""
    if source:
        problem = problem_of_source(source)
        yield not problem, "source", problem or source
        if problem:
            return
    finder = edge_finder(options.edge, version, token.endpoint)
    try:
        regions = finder.find()
    except DiscoveryFailed as error:
        questions = "" if options.edge else ", which must answer SRV questions"
        yield False, "addresses", f"{error}; check the DNS of this host{questions}"
        return
    try:
        check_version(regions, version, source)
    except DiscoveryFailed as error:
        yield False, "addresses", str(error)
        return
    addresses = [address for region in regions for address in Region(region, version).active]
    yield True, "addresses", f"{finder.name}: {', '.join(map(str, addresses))}"
    try:
        roots = edge_trust(options.edge_ca_file, options.state_path).roots()
    except TrustUnavailable as error:
        yield False, "roots", str(error)
        return
    yield True, "roots", options.edge_ca_file or "the two published ones"
    means = DialMeans(options.tunnel_token.reveal(), uuid.uuid4().bytes, roots, source)
    reached = []
    for address in addresses:
        step = _dial(address, means, registers=False)
        reached += [address] if step[0] else []
        yield step
    if registers and reached:
        yield _dial(reached[0], means, registers=True)


def _dial(address: EdgeAddress, means: DialMeans, *, registers: bool, is_small: bool = False) -> Step:
    """Dial with a worker's code; retry with small packets if a worker's next dial would use them."""
    loop = Loop()
    heard: list[EdgeReport] = []
    began_s = time.monotonic()

    def hear(report: EdgeReport) -> None:
        heard.append(report)
        if isinstance(report, Registered):
            links.obey(Withdraw(1), None)
        elif isinstance(report, Pushed):
            links.obey(PushTaken(report.push, NO_VERSION if report.version is None else report.version), None)
        elif isinstance(report, Ended | Reached):
            # Drained, not closed: an unregistered connection still has messages to send.
            links.drain(loop.stop)

    links = Links(loop, _refuse, Caches(), Stats(), hear)
    links.obey(Dial(1, 0, address, 0, registers, is_small), memoryview(msgspec.msgpack.encode(means)))
    loop.deadline(loop.stop).set(loop.now_s + _DIAL_TIMEOUT_S)
    loop.run()
    links.close()
    loop.close()
    if not is_small and any(isinstance(report, Ended) and report.black_hole is BlackHole.YES for report in heard):
        is_well, step, text = _dial(address, means, registers=registers, is_small=True)
        if is_well:
            return is_well, step, f"{text}, only with small packets: full-size packets are lost on the way"
    return _told(address, heard, time.monotonic() - began_s, registers=registers)


def _refuse(client: ClientStream, _head: RequestHead, _end_stream: bool) -> ClientExchange:
    client.send_headers(FAILURE_HEAD, True)
    return REFUSED


def _told(address: EdgeAddress, heard: Sequence[EdgeReport], took_s: float, *, registers: bool) -> Step:
    step = "registration" if registers else "TCP and TLS"
    for report in heard:
        if isinstance(report, Registered):
            return True, step, f"{address}: registered at {report.location}, and unregistered"
        if isinstance(report, Reached):
            return True, step, f"{address}: {took_s * 1000:.0f} ms"
        if isinstance(report, Ended):
            remedy = _REMEDIES.get(report.cause)
            return False, step, f"{address}: {report.error}" + (f"; {remedy}" if remedy else "")
    return False, step, f"{address}: nothing within {_DIAL_TIMEOUT_S:g} s"
