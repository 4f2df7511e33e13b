"""A daemon with every kind of part, driven by its arguments; a program for the tests of the lifecycle.

    python -m tests.daemonkit.apps.daemon API_ADDRESS [--dying-thread MODE] [--grace SECONDS]

`GET /slow` answers when a line arrives on standard input or the process drains, never by itself.
"""

import argparse
import sys
import threading
import time
from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIEnvironment

from werkzeug.wrappers import Request, Response

from daemonkit.addresses import ListenAddress
from daemonkit.lifecycle import Daemon
from daemonkit.logs import get_logger, setup
from daemonkit.ops import OpsApp
from daemonkit.wsgi import HttpServer


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("api_address")
    parser.add_argument("--dying-thread", choices=("raises", "returns"))
    parser.add_argument("--grace", type=float, default=10.0)
    parser.add_argument("--hang", action="store_true", help="/slow never ends")
    parser.add_argument("--broken-stop", action="store_true", help="what is called first when it is to stop raises")
    parser.add_argument("--stubborn-thread", action="store_true", help="one thread does not end when it should")
    parser.add_argument("--tidy-thread", action="store_true", help="one thread has something left to do at the end")
    parser.add_argument("--threads", type=int, help="how many may be started, as under a limit of tasks")
    arguments = parser.parse_args()
    if arguments.threads is not None:
        limit_threads(arguments.threads)
    setup("debug")
    log = get_logger("daemon")
    daemon = Daemon("tester", arguments.grace, log)
    is_ready = threading.Event()
    is_ready.set()
    may_die = threading.Event()

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        request = Request(environ)
        if request.path == "/die":
            may_die.set()
        if request.path == "/slow":
            log.info("slow request runs")
            daemon.stop.wait()
            if arguments.hang:
                threading.Event().wait()
        return Response("done\n")(environ, start_response)

    def die() -> None:
        may_die.wait()
        if arguments.dying_thread == "raises":
            raise LookupError("lost it")

    def tidy() -> None:
        daemon.stop.wait()
        time.sleep(0.3)
        log.info("tidied")

    def fail() -> None:
        raise LookupError("lost it")

    def on_stop() -> None:
        is_ready.clear()
        log.info("no longer ready")

    ops = OpsApp(lambda: None, lambda: None if is_ready.is_set() else "stopping")
    daemon.serve(HttpServer("ops", ListenAddress.parse("127.0.0.1:0"), ops, log=log))
    daemon.serve(HttpServer("api", ListenAddress.parse(arguments.api_address), app, log=log))
    daemon.thread("patient", daemon.stop.wait)
    if arguments.tidy_thread:
        daemon.thread("tidy", tidy)
    if arguments.stubborn_thread:
        daemon.thread("stubborn", threading.Event().wait)
    if arguments.dying_thread:
        daemon.thread("mortal", die)
    if arguments.broken_stop:
        daemon.on_stop(fail)
    daemon.on_stop(on_stop)
    return daemon.run()


def limit_threads(count: int) -> None:
    start, left = threading.Thread.start, threading.Semaphore(count)

    def start_if_there_is_one(self: threading.Thread) -> None:
        if not left.acquire(blocking=False):
            raise RuntimeError("can't start new thread")
        start(self)

    threading.Thread.start = start_if_there_is_one  # type: ignore[method-assign]


if __name__ == "__main__":
    sys.exit(main())
