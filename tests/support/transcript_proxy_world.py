"""The world of a proxy's transcript: a real proxy, the small backends of `examples/`, and a shell beside them.

The documents tell readers to use the ports below; here each stands for a free one. The files that the documents show
are in the shell's working directory, and so is `examples/`. PROXY_AUTH_TOKEN is set unless the proxy is to be open to
everyone. The words of a set-up, in any order:

    NAME=value           an environment variable of daemon and shell
    --flag=value         an argument of `tunnelgw-proxy run`
    document=FILE        sent with PUT /config first
    empty                a proxy without a document
    alone                no proxy: for commands that need none
    stopped=PORT         the backend on that port is stopped
    status=PORT:CODE     the backend on that port is restarted, and responds with this status code
    restarted            the proxy is stopped and started
    hangup               the proxy gets SIGHUP, has read its file again, and serves it
"""

import re
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import requests

from tests.support.daemon import Daemon
from tests.support.ports import ReservedPort
from tests.support.process import REPOSITORY, Process
from tests.support.transcript_shell import WAIT_S, Shell
from tests.support.transcripts import CONTINUED

CONFIG_PORT = "8082"
DOOR_PORTS = ("8080", "8443")
BACKENDS = {"3000": "blue", "3001": "green", "3002": "red"}
"""Port and name."""
HOME = "/home/you"
STATE_DIR = "/var/lib/tunnelgw-proxy"
SOCKET = "/run/tunnelgw-proxy/config.sock"
TOKEN = "a-long-random-text"
OPEN = "--allow-unauthenticated-config"


class ProxyWorld(Shell):
    """`files`: those that the document shows. Leaving the block stops everything; the proxy must exit with 0."""

    def __init__(self, files: Mapping[str, str]) -> None:
        super().__init__()
        self._files = files
        self._ports: dict[str, str] = {}
        """Documented port and the port used here."""
        self._flags: list[str] = []
        self._backends: dict[str, Process] = {}
        self._proxy: Daemon | None = None

    def __exit__(self, *_: object) -> None:
        try:
            self._stop_proxy()
        finally:
            self._resources.close()

    def change(self, words: Sequence[str]) -> None:
        """Begin as `words` say, or go on if the first word is `continued`."""
        is_first = bool(words) and words[0] != CONTINUED
        if is_first:
            self._begin(words)
        for word in words:
            name, _, value = word.partition("=")
            match name:
                case "stopped":
                    self._stop_backend(value)
                case "status":
                    self._stop_backend(value.partition(":")[0])
                    self._start_backend(*value.split(":"))
                case "restarted":
                    self._stop_proxy()
                    self._start_proxy()
                case "hangup":
                    self._hang_up()
        if is_first and "alone" not in words:
            self._start_proxy()
        for word in words:
            if word.startswith("document="):
                self._put(word.removeprefix("document="))

    def _begin(self, words: Sequence[str]) -> None:
        variables = dict(word.split("=", 1) for word in words if word.partition("=")[0].isupper())
        self._flags = [word for word in words if word.startswith("--")]
        token = {} if OPEN in words else {"PROXY_AUTH_TOKEN": TOKEN}
        home = self._make_home({**token, **variables})
        for port in (*DOOR_PORTS, *BACKENDS):  # also while a backend is stopped, or another program might respond there
            self._ports[port] = str(self._resources.enter_context(ReservedPort()).number)
        for port in BACKENDS:
            self._start_backend(port)
        self._places = [(STATE_DIR, str(home / "state")), (SOCKET, str(home / "config.sock")), (HOME, str(home))]
        self._env = {name: self._as_meant(value) for name, value in self._env.items()}
        shutil.copytree(REPOSITORY / "examples", home / "examples", ignore=shutil.ignore_patterns("__pycache__"))
        for file in (home / "examples" / "proxy").iterdir():
            file.write_text(self._as_meant(file.read_text(encoding="utf-8")), encoding="utf-8")
        for name, content in self._files.items():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(self._as_meant(content), encoding="utf-8")

    # -- backends ----------------------------------------------------------------------------------------------------

    def _start_backend(self, port: str, status_code: str = "200") -> None:
        name = BACKENDS[port]
        program = str(REPOSITORY / "examples" / "backend.py")
        command = [sys.executable, program, self._ports[port], "--name", name, "--status", status_code]
        backend = self._backends[port] = self._resources.enter_context(Process(name, command))
        backend.wait_for_line(lambda line: "listens on" in line, "that it listens", WAIT_S)

    def _stop_backend(self, port: str) -> None:
        self._backends.pop(port).stop()

    # -- the proxy ---------------------------------------------------------------------------------------------------

    def _start_proxy(self) -> None:
        is_placed = any(flag.startswith("--config-addr") for flag in self._flags)
        address = [] if is_placed else ["--config-addr", "127.0.0.1:0"]
        workers = [] if any(flag.startswith("--workers") for flag in self._flags) else ["--workers", "1"]
        flags = list(map(self._as_meant, self._flags))
        proxy = self._proxy = Daemon("proxy", ["run", *address, *workers, *flags], self._env).start()
        self._resources.callback(self._stop_proxy)
        if not is_placed:
            self._ports[CONFIG_PORT] = proxy.address("config").rpartition(":")[2]
        proxy.wait_for_message("started")

    def _stop_proxy(self) -> None:
        if self._proxy is not None:
            proxy, self._proxy = self._proxy, None
            assert proxy.stop() == 0, proxy.tail

    def _hang_up(self) -> None:
        loaded = sum('"configuration loaded"' in line for line in self._running.lines)
        self._running.send_signal(signal.SIGHUP)
        self._running.wait_for_line(
            lambda line: '"configuration loaded"' in line, "the file read again", WAIT_S, loaded + 1
        )
        # The line comes before the workers serve the file. A PUT of the same document is answered when all of them do.
        [file] = [flag.removeprefix("--config=") for flag in self._flags if flag.startswith("--config=")]
        self._put(Path(file).name)

    def _put(self, name: str) -> None:
        reply = requests.put(
            f"http://127.0.0.1:{self._ports[CONFIG_PORT]}/config",
            data=(Path(self._env["HOME"]) / name).read_bytes(),
            headers={"Authorization": f"Bearer {TOKEN}"},
            timeout=WAIT_S,
        )
        assert reply.status_code == 200, reply.text

    @property
    def _running(self) -> Daemon:
        assert self._proxy is not None, "no proxy runs in this set-up"
        return self._proxy

    # -- both names of things ----------------------------------------------------------------------------------------

    def _as_meant(self, text: str) -> str:
        return _renumbered(super()._as_meant(text), self._ports)

    def _as_documented(self, text: str) -> str:
        return super()._as_documented(_renumbered(text, {used: port for port, used in self._ports.items()}))


def _renumbered(text: str, ports: Mapping[str, str]) -> str:
    if not ports:
        return text
    return re.sub(rf"(?<!\d)(?:{'|'.join(ports)})(?!\d)", lambda found: ports[found[0]], text)
