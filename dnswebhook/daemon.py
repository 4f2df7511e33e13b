"""From the command line to a running daemon: creates its parts and connects them."""

import dataclasses
import sys

from prometheus_client import CollectorRegistry

import daemonkit
from daemonkit import logs, standardfiles
from daemonkit.lifecycle import Daemon
from daemonkit.logs import get_logger
from daemonkit.memory import give_back_large_buffers, spare_the_collector
from daemonkit.ops import OpsApp, process_metrics
from daemonkit.options import refuse
from daemonkit.wsgi import HttpServer, ServerLimits
from dnswebhook.app import Limits, WebhookApp
from dnswebhook.errors import CredentialsRefused, StoreError
from dnswebhook.journal import Journal
from dnswebhook.metrics import Metrics
from dnswebhook.options import PROG, Options
from dnswebhook.provider import Policy, Provider
from dnswebhook.readiness import Readiness
from dnswebhook.stores.base import Store
from dnswebhook.stores.embedded import EmbeddedStore
from dnswebhook.stores.observed import ObservedStore

log = get_logger(__name__)


def main(command: str, options: Options) -> None:
    if command != "run" and options.log_level == "info":
        logs.setup("warning", options.log_format)  # the user asked for a table, not for the steps towards it
    metrics = Metrics(CollectorRegistry())
    try:
        store = open_store(options, metrics, remembers=command == "run")
    except ValueError as error:  # a file that an option names cannot be used
        refuse(PROG, [str(error)])
    try:
        if command == "run":
            sys.exit(serve(options, store, metrics))
        from dnswebhook import commands  # importing its tables would cost a daemon 25 ms and 3 MiB

        with standardfiles.printing(f"{PROG} {command}"):
            if command == "check":
                sys.exit(commands.check(store, as_json=options.json))
            sys.exit(commands.records(store, where=options.store_place(), as_json=options.json))
    finally:
        store.close()


def open_store(options: Options, metrics: Metrics, *, remembers: bool) -> Store:
    """`remembers`: whether to write to the state directory; commands for people do not."""

    def observe(operation: str, outcome: str, seconds: float) -> None:
        metrics.store_requests.labels(operation, outcome).observe(seconds)

    if options.uses_unifi:
        from dnswebhook.stores.unifi.store import UnifiStore  # imports the controllers' TLS, HTTP and JSON

        settings = options.unifi_settings()
        if not remembers:
            settings = dataclasses.replace(settings, state_dir=None)
        return UnifiStore(settings, observe, metrics.rate_limit_hits.inc)
    return ObservedStore(EmbeddedStore(options.state_path(), makes_file=remembers), observe)


def serve(options: Options, store: Store, metrics: Metrics) -> int:
    """Returns the exit code."""
    give_back_large_buffers()
    process_metrics(metrics.registry, PROG, daemonkit.__version__)
    if not options.uses_unifi and options.store == "auto":
        log.warning("UNIFI_HOST is not set: records are kept in the embedded store", path=str(options.state_path()))
    if options.dry_run:
        log.warning("dry run: changes are logged and answered, but not written")
    daemon = Daemon(PROG, options.grace_period_s, log)
    readiness = Readiness(store, daemon.stop, metrics.store_is_ready.set)
    policy = Policy(
        domain_filter=options.filter(),
        protected=options.protected(),
        max_delete_share=options.max_delete_share,
        is_dry_run=options.dry_run,
        write_parallelism=options.write_parallelism,
    )
    journal = Journal(options.state_path(), options.store_identity)
    provider = Provider(store, policy, metrics, journal)

    def on_store_error(error: StoreError) -> None:
        if isinstance(error, CredentialsRefused):
            readiness.credentials_refused()
        readiness.probe_soon()

    limits = Limits(options.max_body_bytes, options.call_deadline_s)
    api = WebhookApp(provider, limits, metrics, daemon.stop, on_store_error)
    ops = OpsApp(liveness=lambda: None, readiness=readiness.problem, registry=metrics.registry)
    daemon.serve(HttpServer("health", options.health_addr, ops, log=log, limits=ServerLimits(threads=4)))
    daemon.thread("probe", readiness.run)
    # A body that arrives too slowly counts against the call's own deadline.
    server_limits = ServerLimits(threads=options.api_threads, body_timeout_s=options.call_deadline_s)
    daemon.serve(HttpServer("api", options.api_addr, api, log=log, limits=server_limits))
    daemon.on_stop(readiness.wake)
    spare_the_collector()
    try:
        return daemon.run()
    finally:
        provider.close()
