"""Assembles the supervisor: from options to a running daemon."""

import signal
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

import daemonkit
from daemonkit.lifecycle import EXIT_FATAL, Daemon
from daemonkit.logs import get_logger
from daemonkit.memory import give_back_large_buffers, spare_the_collector
from daemonkit.ops import OpsApp, process_metrics
from daemonkit.wsgi import HttpServer, ServerLimits
from proxy.control import Begin
from proxy.document import DocumentError
from proxy.options import PROG, Options
from proxy.supervisor.api import PATH, ConfigApi
from proxy.supervisor.certificates import ApiCertificate
from proxy.supervisor.configuration import Configuration, Stopping
from proxy.supervisor.fleet import Fleet
from proxy.supervisor.metrics import ProxyCollector
from proxy.supervisor.shutdowndelay import ShutdownDelay
from proxy.supervisor.sockets import ListeningSockets
from proxy.supervisor.state import MAX_DOCUMENT_BYTES, StateFile
from proxy.supervisor.workerprocess import WorkerProcess
from proxy.tunnel.token import TunnelToken

if TYPE_CHECKING:
    from proxy.supervisor.tunnel import Tunnel

log = get_logger(__name__)

_API_LIMITS = ServerLimits(threads=8, body_timeout_s=60.0)


class UnusableFile(Exception):
    """A file named by an option (--config, --edge-ca-file) cannot be used."""


def serve(options: Options, first: Mapping[int, WorkerProcess], jit: bool | None) -> int:
    """Returns the exit code. Raises UnusableFile and MalformedToken before anything is served."""
    give_back_large_buffers()
    sockets = ListeningSockets(options.worker_count)
    settings = options.access_log_settings()
    begins = [Begin(index, options.log_level, options.log_format, settings) for index in range(options.worker_count)]
    fleet = Fleet(begins, first, jit)
    # Written out, a document may be longer than as it was sent.
    most_bytes = max(MAX_DOCUMENT_BYTES, 2 * options.max_document_bytes)
    state = StateFile(options.state_path, most_bytes) if options.state_path else None
    configuration = Configuration(fleet, sockets, state, most_bytes)
    daemon = Daemon(PROG, options.grace_period_s + options.shutdown_delay_s, log)
    tunnel = _tunnel(daemon, options, fleet)
    api = _api(options, configuration, fleet, tunnel)
    try:
        # Before any document is loaded: if another proxy has this address, we would share its document's ports, and
        # reset those of its clients that connect to us.
        api.bind()
    except OSError as error:
        log.error("exiting", error=error, daemon=PROG)
        return EXIT_FATAL
    try:
        configuration.open_state(restores=options.config_path is None)
        if options.config_path is not None:
            _load(configuration, options.config_path)
    except UnusableFile:
        api.stop()
        raise
    daemon.serve(api)
    for slot in fleet.slots:
        slot.on_failing = configuration.withdraw
        daemon.thread(f"worker-{slot.index}", slot.run)
    daemon.serve(fleet)
    daemon.thread("worker-watch", lambda: fleet.watch(daemon.stop))
    if tunnel is not None:
        daemon.thread("tunnel", tunnel.run)
        daemon.on_stop(tunnel.stop_is_near)
    daemon.thread("listeners", lambda: configuration.retry_sockets(daemon.stop))
    if state is not None:
        daemon.thread("keeping", lambda: configuration.retry_keeping(daemon.stop))
    daemon.serve(ShutdownDelay(configuration, options.shutdown_delay_s))
    daemon.on_stop(fleet.stop_is_near)
    _reload_on_hangup(configuration, options)
    spare_the_collector()
    return daemon.run()


def _load(configuration: Configuration, path: Path) -> None:
    try:
        configuration.load_file(path)
    except OSError as error:
        raise UnusableFile(f"cannot read {path}: {error.strerror}") from error
    except DocumentError as error:
        raise UnusableFile("\n".join(f"{path}: {problem}" for problem in error.problems)) from error


def _tunnel(daemon: Daemon, options: Options, fleet: Fleet) -> "Tunnel | None":
    if options.tunnel_token is None:
        return None
    # Imported here, as only a tunnel needs them.
    from proxy.supervisor.edgefinder import edge_finder
    from proxy.supervisor.edgetrust import TrustUnavailable, edge_trust
    from proxy.supervisor.tunnel import Tunnel, TunnelSettings

    token = TunnelToken.decode(options.tunnel_token.reveal())
    version, source = options.edge_version, options.edge_bind_address or ""
    finder = edge_finder(options.edge, version, token.endpoint)
    trust = edge_trust(options.edge_ca_file, options.state_path)
    if options.edge_ca_file:
        try:
            trust.roots()
        except TrustUnavailable as error:
            raise UnusableFile(str(error)) from error
    settings = TunnelSettings(options.ha_connections, version, options.register_without_config, source)
    tunnel = Tunnel(settings, options.tunnel_token, fleet.slots, finder, trust, daemon.stop)
    if options.tunnel_token.path:
        from proxy.supervisor.tokenfile import TokenFile

        file = TokenFile(options.tunnel_token, tunnel.use_token)
        daemon.thread("tunnel-token", lambda: file.watch(daemon.stop))
    return tunnel


def _api(options: Options, configuration: Configuration, fleet: Fleet, tunnel: "Tunnel | None") -> HttpServer:
    registry = CollectorRegistry()
    process_metrics(registry, PROG.replace("-", "_"), daemonkit.__version__)
    certificate = ApiCertificate()
    registry.register(ProxyCollector(fleet, configuration, certificate))
    if tunnel is not None:
        from proxy.supervisor.tunnelmetrics import TunnelCollector

        registry.register(TunnelCollector(fleet, tunnel))

    def missing_directly() -> str | None:
        return "no configuration is loaded yet" if configuration.loaded is None else fleet.problem()

    def missing() -> str | None:
        return missing_directly() or (tunnel.problem() if tunnel is not None else None)

    if options.auth_token is None and not options.allow_unauthenticated_config:
        log.warning("PROXY_AUTH_TOKEN is not set: PUT /config and GET /config are refused")
    api = ConfigApi(
        configuration,
        OpsApp(
            liveness=lambda: None,
            readiness=missing,
            registry=registry,
            parts={"direct": missing_directly},
            beside=(PATH,),
        ),
        token=options.auth_token,
        is_open=options.allow_unauthenticated_config,
        max_document_bytes=options.max_document_bytes,
        # As readiness says it: the daemon's own `stop` is set a moment later.
        is_stopping=lambda: fleet.is_stopping,
        remote_version=None if tunnel is None else lambda: tunnel.remote_version,
    )
    return HttpServer(
        "config",
        options.config_addr,
        api,
        log=log,
        limits=_API_LIMITS,
        tls=options.config_tls,
        on_certificate=certificate.use,
    )


def _reload_on_hangup(configuration: Configuration, options: Options) -> None:
    """Reload the file on SIGHUP, which has been blocked since the process began; without a file it has no effect."""
    path = options.config_path
    if path is None:
        return
    # The daemon handles stop signals: in a thread that does not block them, they would end the process.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})

    def reload_for_ever() -> None:
        while True:
            signal.sigwait({signal.SIGHUP})
            try:
                if not configuration.load_file(path):
                    log.info("configuration file is unchanged", path=str(path))
            except Stopping:
                return
            except (OSError, DocumentError) as error:
                log.error(
                    "cannot load the configuration file, the previous document stays in use",
                    error=error,
                    path=str(path),
                )

    threading.Thread(target=reload_for_ever, name="hangup", daemon=True).start()
