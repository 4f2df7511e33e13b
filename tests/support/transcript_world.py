"""The world of a transcript: a daemon as a real process, its store, a simulated controller, and a shell beside them.

Documents name the addresses of a usual installation; the world uses free ports of its own and translates both ways. The
words of a set-up, in any order:

    embedded, v2, integration     the store; the latter two with a simulated controller of Network 9.4 or 10.4
    NAME=value                    an environment variable of daemon and shell
    trust=none                    no UNIFI_CA_CERT, so the controller's certificate is not trusted
    trust=fingerprint             UNIFI_TLS_FINGERPRINT instead
    credentials=user              user and password instead of an API key
    stopped                       the controller is switched off
    sessions=expired              its logins have ended
    restarted                     the daemon is stopped and started
    rows=NAME                     other people's rows, see ROWS
    fault=NAME, fault=none        see FAULTS
    until=unready, until=ready    wait until the log says so; within a story, every such change must be waited for
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from tests.support.controller.faults import Effect, Hang, Reset, bad_gateway, rate_limited
from tests.support.controller.rows import Origin
from tests.support.controller.simulator import Controller
from tests.support.daemon import Daemon
from tests.support.transcript_shell import WAIT_S, Shell
from tests.support.transcripts import CONTINUED

API = "127.0.0.1:8888"
HEALTH = "127.0.0.1:8080"
CONTROLLER_HOST = "192.168.1.1"
CONTROLLER_PORT = 443
STATE_DIR = "/var/lib/dnswebhook"
CA_FILE = "/etc/dnswebhook/controller-ca.pem"

VERSIONS = {"v2": "9.4.19", "integration": "10.4.57"}
FAULTS: dict[str, tuple[Effect, str, str]] = {
    "rate-limited": (rate_limited("30"), "any", "*"),
    "hangs": (Hang(), "any", "*"),
    "refuses-b": (bad_gateway(), "create", "b.example.com"),
    "resets": (Reset(), "any", "*"),
}
ROWS = {
    "by-hand": (("app.example.com", "A", "192.0.2.99", True, Origin.USER_DEFINED),),
    "cname-by-hand": (("app.example.com", "CNAME", "elsewhere.example.com", True, Origin.USER_DEFINED),),
    "disabled": (("app.example.com", "A", "192.0.2.10", False, Origin.USER_DEFINED),),
    "derived": (("printer.example.com", "A", "192.0.2.50", True, Origin.DERIVED),),
}


class World(Shell):
    """Leaving the block stops everything; the daemon must end with exit code 0."""

    def __init__(self) -> None:
        super().__init__()
        self._controller: Controller | None = None
        self._daemon: Daemon | None = None
        self._verdicts: Counter[str] = Counter()

    def __exit__(self, *_: object) -> None:
        try:
            if self._controller is not None:
                self._controller.release_hangs()
            self._stop_daemon()
        finally:
            self._resources.close()

    def change(self, words: Sequence[str]) -> None:
        """Begin as `words` say, or go on if the first word is `continued`."""
        if words and words[0] != CONTINUED:
            self._begin(words)
        for word in words:
            name, _, value = word.partition("=")
            match name:
                case "stopped":
                    self._simulated.stop()
                case "sessions":
                    self._simulated.expire_sessions()
                case "rows":
                    self._add_rows(value)
                case "fault":
                    self._set_fault(value)
                case "restarted":
                    self._stop_daemon()
        if self._daemon is None:
            self._start_daemon()
        for word in words:
            if word.startswith("until="):
                self._wait_until(word.removeprefix("until="))

    def _begin(self, words: Iterable[str]) -> None:
        home = self._make_home({})
        state_dir = home / "state"
        state_dir.mkdir()
        self._places.append((STATE_DIR, str(state_dir)))
        self._env["DNSWEBHOOK_STATE_DIR"] = str(state_dir)
        for kind in VERSIONS.keys() & set(words):
            self._begin_controller(VERSIONS[kind])
            self._env |= self._trust(words) | self._credentials(words)
        self._env |= dict(word.split("=", 1) for word in words if word.partition("=")[0].isupper())

    def _begin_controller(self, version: str) -> None:
        controller = self._resources.enter_context(Controller(version=version, uses_tls=True))
        self._controller = controller
        self._env["UNIFI_HOST"] = controller.url
        self._places += [
            (CA_FILE, str(controller.ca_pem_path)),
            (f"https://{CONTROLLER_HOST}", controller.url),
            (f"{CONTROLLER_HOST}, port {CONTROLLER_PORT}", f"127.0.0.1, port {controller.port}"),
            (f"{CONTROLLER_HOST} port {CONTROLLER_PORT}", f"127.0.0.1 port {controller.port}"),
        ]

    def _trust(self, words: Iterable[str]) -> dict[str, str]:
        if "trust=fingerprint" in words:
            return {"UNIFI_TLS_FINGERPRINT": self._simulated.fingerprint_sha256}
        return {} if "trust=none" in words else {"UNIFI_CA_CERT": str(self._simulated.ca_pem_path)}

    def _credentials(self, words: Iterable[str]) -> dict[str, str]:
        controller = self._simulated
        if "credentials=user" in words:
            return {"UNIFI_USER": controller.username, "UNIFI_PASS": controller.password}
        return {"UNIFI_API_KEY": controller.api_key}

    def _start_daemon(self) -> None:
        self._daemon = Daemon.dnswebhook(self._env).start()
        self._resources.callback(self._stop_daemon)
        self._places += [(API, self._daemon.address("api")), (HEALTH, self._daemon.address("health"))]

    def _stop_daemon(self) -> None:
        if self._daemon is not None:
            daemon, self._daemon = self._daemon, None
            self._places = [place for place in self._places if place[0] not in (API, HEALTH)]
            self._verdicts.clear()
            assert daemon.stop() == 0, daemon.tail

    def _add_rows(self, name: str) -> None:
        for key, record_type, value, is_enabled, origin in ROWS[name]:
            self._simulated.add_row(key, record_type, value, enabled=is_enabled, origin=origin)

    def _set_fault(self, name: str) -> None:
        self._simulated.faults.clear()
        if name != "none":
            effect, operation, key = FAULTS[name]
            self._simulated.fault(effect, operation, name=key)

    def _wait_until(self, state: str) -> None:
        self._verdicts[state] += 1
        message = {"ready": "record store is ready", "unready": "record store is not ready"}[state]
        self._running.wait_for_line(lambda line: f'"{message}"' in line, message, WAIT_S, self._verdicts[state])

    @property
    def _running(self) -> Daemon:
        assert self._daemon is not None, "no set-up was named yet"
        return self._daemon

    @property
    def _simulated(self) -> Controller:
        assert self._controller is not None, "this set-up has no controller, want v2 or integration"
        return self._controller
