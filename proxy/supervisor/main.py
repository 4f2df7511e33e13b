"""The supervisor's parts, joined: from options to a running daemon."""

import signal
import threading

from prometheus_client import CollectorRegistry

import daemonkit
from daemonkit.lifecycle import Daemon
from daemonkit.logs import get_logger
from daemonkit.memory import give_back_large_buffers, spare_the_collector
from daemonkit.ops import OpsApp, process_metrics
from daemonkit.wsgi import HttpServer, ServerLimits
from proxy.control import Begin
from proxy.document import DocumentError
from proxy.options import PROG, Options
from proxy.supervisor.api import ConfigApi
from proxy.supervisor.configuration import Configuration
from proxy.supervisor.fleet import Fleet
from proxy.supervisor.metrics import ProxyCollector
from proxy.supervisor.shutdowndelay import ShutdownDelay
from proxy.supervisor.sockets import ListeningSockets
from proxy.supervisor.state import StateFile

log = get_logger(__name__)

_API_LIMITS = ServerLimits(threads=8, body_timeout_s=60.0)


class UnusableFile(Exception):
    """The file of --config cannot be loaded."""


def serve(options: Options) -> int:
    """Returns the exit code. Raises UnusableFile before anything has started."""
    give_back_large_buffers()
    sockets = ListeningSockets(options.worker_count)
    settings = options.access_log_settings()
    begins = [Begin(index, options.log_level, options.log_format, settings) for index in range(options.worker_count)]
    fleet = Fleet(begins)
    state = StateFile(options.state_path) if options.state_path else None
    configuration = Configuration(fleet, sockets, state)
    _load(configuration, options)
    daemon = Daemon(PROG, options.grace_period_s + options.shutdown_delay_s, log)
    _serve_api(daemon, options, configuration, fleet)
    for slot in fleet.slots:
        slot.on_failing = configuration.withdraw
        daemon.thread(f"worker-{slot.index}", slot.run)
    daemon.serve(fleet)
    daemon.thread("worker-watch", lambda: fleet.watch(daemon.stop))
    daemon.thread("listeners", lambda: configuration.retry_sockets(daemon.stop))
    daemon.serve(ShutdownDelay(configuration, options.shutdown_delay_s))
    daemon.on_stop(fleet.stop_is_near)
    _reload_on_hangup(configuration, options)
    spare_the_collector()
    return daemon.run()


def _load(configuration: Configuration, options: Options) -> None:
    if options.config_path is None:
        configuration.restore()
        return
    try:
        configuration.load_file(options.config_path)
    except OSError as error:
        raise UnusableFile(f"cannot read {options.config}: {error.strerror}") from error
    except DocumentError as error:
        raise UnusableFile("\n".join(f"{options.config}: {problem}" for problem in error.problems)) from error


def _serve_api(daemon: Daemon, options: Options, configuration: Configuration, fleet: Fleet) -> None:
    registry = CollectorRegistry()
    process_metrics(registry, PROG.replace("-", "_"), daemonkit.__version__)
    registry.register(ProxyCollector(fleet, configuration))

    def missing() -> str | None:
        return "no configuration is loaded yet" if configuration.loaded is None else fleet.problem()

    if options.auth_token is None and not options.allow_unauthenticated_config:
        log.warning("PROXY_AUTH_TOKEN is not set: PUT /config and GET /config are refused")
    api = ConfigApi(
        configuration,
        OpsApp(liveness=lambda: None, readiness=missing, registry=registry),
        token=options.auth_token,
        is_open=options.allow_unauthenticated_config,
        max_document_bytes=options.max_document_bytes,
        is_stopping=daemon.stop.is_set,
    )
    daemon.serve(
        HttpServer(
            "config",
            options.config_addr,
            api,
            log=log,
            limits=_API_LIMITS,
            tls=options.config_tls,
        )
    )


def _reload_on_hangup(configuration: Configuration, options: Options) -> None:
    """Without a file there is nothing to read again, and SIGHUP is ignored as by every daemon of ours."""
    path = options.config_path
    if path is None:
        return
    # A blocked signal waits to be taken even where it is ignored otherwise; threads started from here on block it too.
    # Signals to stop are the daemon's to take: a thread that did not block them would have them end the process.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP, signal.SIGTERM, signal.SIGINT})

    def reload_for_ever() -> None:
        while True:
            signal.sigwait({signal.SIGHUP})
            try:
                if not configuration.load_file(path):
                    log.info("configuration file is unchanged", path=str(path))
            except (OSError, DocumentError) as error:
                log.error(
                    "configuration file cannot be loaded, the one before stays in use", error=error, path=str(path)
                )

    threading.Thread(target=reload_for_ever, name="hangup", daemon=True).start()
