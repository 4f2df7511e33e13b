"""The controller as a daemon: its parts, and how they are connected."""

import math
import threading
import time
from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry

import daemonkit
from daemonkit.lifecycle import EXIT_FATAL, Daemon
from daemonkit.logs import get_logger
from daemonkit.memory import spare_the_collector
from daemonkit.ops import OpsApp, process_metrics
from daemonkit.secret import Secret
from daemonkit.wsgi import HttpServer, ServerLimits
from tunnelgw.deliver.dispatch import Dispatch, Settings
from tunnelgw.deliver.wanted import Wanted
from tunnelgw.features import SUPPORTED
from tunnelgw.means import discovery_of, means_of
from tunnelgw.metrics import Metrics
from tunnelgw.options import PROG, Options
from tunnelgw.origins import Listeners, NoToken, origin_of
from tunnelgw.reconcile import Reconciler
from tunnelgw.report.events import Recorder, WarningEvents
from tunnelgw.report.fulllists import FullLists
from tunnelgw.report.ingress import IngressReport
from tunnelgw.report.reporter import Reporter
from tunnelgw.report.statusqueue import StatusQueue
from tunnelgw.sources.store import Store
from tunnelgw.status.compose import Author

log = get_logger(__name__)

STATUS_THREADS = 4
LOOK_AGAIN_S = 45.0
"""Longer than a call to the provider (`CallTiming`) that a former leader began just before its Lease expired."""
_HEALTH_LIMITS = ServerLimits(threads=4)


def serve(options: Options) -> int:
    """Returns the exit code."""
    spare_the_collector()
    metrics = Metrics(CollectorRegistry())
    process_metrics(metrics.registry, PROG, daemonkit.__version__)
    daemon = Daemon(PROG, options.grace_period_s, log)
    try:
        controller = _Controller(options, metrics, daemon)
    except OSError as error:
        log.error("exiting", error=error, daemon=PROG)
        return EXIT_FATAL
    if not options.proxy_endpoints and not options.proxy_service:
        # Not an error: all proxies may be named by GatewayConfigs.
        log.warning("no shared proxy is named, see --proxy-endpoints and --proxy-service")
    _serve_ops(daemon, options, metrics, controller)
    daemon.serve(controller)
    for name, target in controller.threads():
        daemon.thread(name, target)
    daemon.on_stop(controller.wake)
    return daemon.run()


class _Controller:
    """The parts of the controller, as one part of the daemon. Reconciling begins when the proxies' token is known."""

    def __init__(self, options: Options, metrics: Metrics, daemon: Daemon) -> None:
        """Raises OSError if a folder or the kubeconfig cannot be used."""
        self._options = options
        self._metrics = metrics
        self._daemon = daemon
        self._store = Store(home=options.namespace, secret_namespaces=options.secret_namespaces)
        listeners = Listeners(lambda kind: metrics.watch_restarts.labels(kind).inc(), self.wake)
        self._origin = origin_of(options, self._store, daemon.stop, listeners)
        self._status_queue = StatusQueue(
            self._origin.writer,
            Author(options.controller_name, SUPPORTED),
            stop=daemon.stop,
            may_write=self._may_write,
            observe=lambda kind, outcome: metrics.statuses.labels(kind, outcome).inc(),
            on_left_out=FullLists(self._recorder).note,
        )
        self._dispatch: Dispatch | None = None
        self._reconciler: Reconciler | None = None
        metrics.is_leader.set_function(lambda: float(self._may_write()))
        self._is_done = threading.Event()
        """Set when the reconciler makes no more turns."""

    # -- life --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Nothing to do: the threads do the work."""

    def threads(self) -> list[tuple[str, Callable[[], None]]]:
        writers = [(f"status-{number}", self._status_queue.run) for number in range(STATUS_THREADS)]
        return [*self._origin.threads(), *writers, ("reconcile", self._reconcile)]

    def wake(self) -> None:
        """End every wait: the daemon is stopping, or leadership has changed."""
        self._store.wake()
        self._status_queue.wake()

    def drain(self, deadline_s: float) -> None:
        self.wake()
        self._origin.drain()
        # Once the reconciler is done, it has dismissed all couriers, and starts no new ones.
        is_done = self._is_done.wait(max(0.0, deadline_s - time.monotonic()))
        if is_done and (self._dispatch is None or self._dispatch.join(deadline_s)):
            self._origin.give_way()
        else:
            log.warning("a delivery is still under way, and ends with the process")

    def stop(self) -> None:
        self._origin.stop()

    def _reconcile(self) -> None:
        try:
            self._run_reconciler(self._origin.token())
        except NoToken as error:
            self._daemon.fail(str(error))
            self._daemon.stop.wait()
        finally:
            self._is_done.set()

    def _run_reconciler(self, token: Secret | None) -> None:
        self._dispatch = self._make_dispatch()
        discovery = discovery_of(self._options, token)
        self._reconciler = Reconciler(
            self._store,
            Wanted(self._dispatch, discovery, self._metrics),
            Reporter(self._dispatch, self._status_queue, WarningEvents(self._recorder), self._metrics),
            discovery,
            leads=self._leads,
            stop=self._daemon.stop,
            fail=self._daemon.fail,
            metrics=self._metrics,
            debounce_s=self._options.debounce_s,
        )
        self._reconciler.run()

    @property
    def _recorder(self) -> Recorder | None:
        return None if self._options.dry_run else self._origin.recorder

    def _make_dispatch(self) -> Dispatch:
        options, metrics = self._options, self._metrics

        def observe(call: str, outcome: str, seconds: float) -> None:
            metrics.provider_calls.labels(call, outcome).observe(seconds)

        settings = Settings(
            means_of(options),
            visit_every_s=options.proxy_visit_interval_s,
            drift_every_s=options.drift_interval_s,
            look_again_s=LOOK_AGAIN_S if options.leader_elect else math.inf,
            is_dry_run=options.dry_run,
        )
        return Dispatch(
            settings,
            may_write=self._leads,
            on_news=self._store.wake,
            on_crash=self._crashed,
            observe=observe,
            report=IngressReport(metrics),
        )

    def _crashed(self, error: BaseException) -> None:
        log.exception("courier failed", error=error)
        self._daemon.fail("a courier ended because of a bug, see above")

    # -- leadership and health ---------------------------------------------------------------------------------------

    def _leads(self) -> bool:
        return not self._daemon.stop.is_set() and self._origin.leads()

    def _may_write(self) -> bool:
        return self._leads() and not self._options.dry_run

    def readiness(self) -> str | None:
        if self._daemon.stop.is_set():
            return "stopping"
        return self._reconciler.readiness() if self._reconciler is not None else "waiting for the auth secret"

    def liveness(self) -> str | None:
        return self._reconciler.liveness() if self._reconciler is not None else None


def _serve_ops(daemon: Daemon, options: Options, metrics: Metrics, controller: _Controller) -> None:
    health: Any = OpsApp(liveness=controller.liveness, readiness=controller.readiness)
    about: Any = OpsApp(liveness=controller.liveness, readiness=controller.readiness, registry=metrics.registry)
    daemon.serve(HttpServer("health", options.health_addr, health, log=log, limits=_HEALTH_LIMITS))
    daemon.serve(HttpServer("metrics", options.metrics_addr, about, log=log, limits=_HEALTH_LIMITS))
