"""All options, declared once: flags, variables, defaults, help and the reference page are generated from here.

Names that users of external-dns already know are kept: `UNIFI_*` and `*DOMAIN_FILTER*` come from earlier webhooks.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from daemonkit.addresses import ListenAddress
from daemonkit.options import CommonOptions, option
from daemonkit.secret import Secret
from daemonkit.values import choice, comma_list, duration, integer, number, parse_bool, parse_file, size
from dnswebhook.domains import DomainFilter, ProtectedNames
from dnswebhook.stores.unifi.settings import ApiChoice, FlavourChoice, UnifiSettings

PROG = "dnswebhook"
PREFIX = "DNSWEBHOOK_"
DESCRIPTION = "The webhook provider with which external-dns keeps records on a UniFi network controller."
COMMANDS = {
    "run": "serve the webhook",
    "check": "check everything between this machine and the records; write nothing; exit code 1 if something fails",
    "records": "print the records in the store",
}


@dataclass(frozen=True, kw_only=True)
class Options(CommonOptions):
    """Raises ValueError for options that cannot be combined."""

    # A misspelt filter would let every domain be written.
    SHARED_PREFIXES = ("UNIFI_", "DOMAIN_FILTER", "EXCLUDE_DOMAIN", "REGEX_DOMAIN", "REGEXP_DOMAIN")

    api_addr: ListenAddress = option(
        parse=ListenAddress.parse,
        default="127.0.0.1:8888",
        group="servers",
        help="where external-dns calls the webhook; keep it on loopback, since there is no authentication",
    )
    health_addr: ListenAddress = option(
        parse=ListenAddress.parse,
        default="0.0.0.0:8080",
        group="servers",
        help="where /healthz, /readyz and /metrics are served",
    )
    max_body_bytes: int = option(
        parse=size(1024),
        default="5MiB",
        unit="bytes",
        group="servers",
        help="larger request bodies are answered 413; 5 MiB hold about 25,000 records",
    )
    api_threads: int = option(
        parse=integer(1, 256), default="16", group="servers", help="how many requests are served at once"
    )
    call_deadline_s: float = option(
        parse=duration(1, 3600),
        default="12s",
        unit="duration",
        group="servers",
        help="a call is answered within this time, with 503 if need be; external-dns itself gives up after 15 s",
    )
    store: str = option(
        parse=choice("auto", "embedded", "unifi"),
        default="auto",
        group="records",
        help="where records are kept; auto: unifi when UNIFI_HOST is set, else embedded",
    )
    state_dir: str | None = option(
        group="records",
        metavar="DIR",
        help="the embedded store's database, the controller's API as last seen, and notes of applies that did not "
        "complete; if not set: "
        "$STATE_DIRECTORY (systemd sets it), else $XDG_STATE_HOME/dnswebhook, else ~/.local/state/dnswebhook",
    )
    dry_run: bool = option(
        parse=parse_bool,
        default="false",
        group="records",
        help="answer as usual, log what would be written, write nothing",
    )
    protect: tuple[str, ...] = option(
        parse=comma_list(),
        default="",
        group="records",
        metavar="PATTERN,...",
        help="names that are never touched, as shell patterns: nas.example.com,*.lan",
    )
    max_delete_share: float = option(
        parse=number(0, 1),
        default="1",
        group="records",
        help="refuse an apply that would delete more than this share of all record sets within the domain filter (when "
        "there are at least 20); 1 switches the guard off, 0.5 is a good start",
    )
    write_parallelism: int = option(
        parse=integer(1, 16), default="5", group="records", help="how many writes to the store run at once"
    )
    domain_filter: tuple[str, ...] = option(
        parse=comma_list(),
        default="",
        env="DOMAIN_FILTER",
        group="domain filter",
        metavar="DOMAIN,...",
        help="only these domains and names below them; .example.com: only names below it",
    )
    exclude_domain_filter: tuple[str, ...] = option(
        parse=comma_list(),
        default="",
        env="EXCLUDE_DOMAIN_FILTER",
        group="domain filter",
        metavar="DOMAIN,...",
        help="not these domains and names below them; .example.com: not names below it",
    )
    regexp_domain_filter: str | None = option(
        env="REGEXP_DOMAIN_FILTER",
        group="domain filter",
        metavar="REGEX",
        help="only names that this expression (RE2) matches somewhere; not together with the lists",
    )
    regexp_domain_filter_exclusion: str | None = option(
        env="REGEXP_DOMAIN_FILTER_EXCLUSION",
        group="domain filter",
        metavar="REGEX",
        help="not names that this expression (RE2) matches somewhere",
    )
    unifi_host: str | None = option(
        env="UNIFI_HOST", group="UniFi", metavar="URL", help="the controller, such as https://192.168.1.1"
    )
    unifi_api_key: Secret | None = option(
        secret=True, env="UNIFI_API_KEY", group="UniFi", help="API key of the controller (Network 9.0 or newer)"
    )
    unifi_user: str | None = option(env="UNIFI_USER", group="UniFi", help="local user, if there are no API keys")
    unifi_pass: Secret | None = option(secret=True, env="UNIFI_PASS", group="UniFi", help="password of the local user")
    unifi_site: str = option(
        default="default", env="UNIFI_SITE", group="UniFi", help="internal name of the site; `default` is the first one"
    )
    unifi_api: str = option(
        parse=choice("auto", "v2", "integration"),
        default="auto",
        env="UNIFI_API",
        group="UniFi",
        help="which API to use; auto: integration from Network 10.1 on, with an API key, else v2",
    )
    unifi_flavour: str = option(
        parse=choice("auto", "os", "classic"),
        default="auto",
        env="UNIFI_FLAVOUR",
        group="UniFi",
        help="os: UniFi OS console; classic: self-hosted Network application; auto: detect",
    )
    unifi_ca_cert: str | None = option(
        env="UNIFI_CA_CERT",
        group="UniFi",
        parse=parse_file,
        help="PEM file with the CA that issued the controller's certificate",
    )
    unifi_tls_fingerprint: str | None = option(
        env="UNIFI_TLS_FINGERPRINT",
        group="UniFi",
        metavar="SHA256",
        help="fingerprint of the controller's certificate, instead of a CA; `dnswebhook check` prints it",
    )
    unifi_skip_tls_verify: bool = option(
        parse=parse_bool,
        default="false",
        env="UNIFI_SKIP_TLS_VERIFY",
        group="UniFi",
        help="accept any certificate: anyone on the network can then read the credentials",
    )
    unifi_request_timeout_s: float = option(
        parse=duration(0.1, 3600),
        default="5s",
        unit="duration",
        env="UNIFI_REQUEST_TIMEOUT",
        group="UniFi",
        help="timeout of each call to the controller",
    )
    json: bool = option(
        parse=parse_bool,
        default="false",
        commands=("records", "check"),
        env="DNSWEBHOOK_JSON",
        group="output",
        help="print JSON instead of a table",
    )

    def __post_init__(self) -> None:
        self.filter()
        self.protected()
        if self.store == "unifi" and not self.unifi_host:
            raise ValueError("--store (DNSWEBHOOK_STORE) is unifi, but --unifi-host (UNIFI_HOST) is not set")
        if self.uses_unifi:
            self.unifi_settings()

    @property
    def uses_unifi(self) -> bool:
        return self.store == "unifi" or (self.store == "auto" and bool(self.unifi_host))

    @property
    def store_identity(self) -> str:
        """Distinguishes the files of different stores in one state directory."""
        return f"{self.unifi_host} {self.unifi_site}" if self.uses_unifi else "embedded"

    def state_path(self) -> Path:
        """`--state-dir`, or the default that the environment gives. Raises ValueError if it gives none."""
        if self.state_dir:
            return Path(self.state_dir)
        given = os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
        if given:
            return Path(given)
        base = os.environ.get("XDG_STATE_HOME")
        try:
            return (Path(base) if base else Path.home() / ".local" / "state") / PROG
        except RuntimeError as error:
            raise ValueError("this user has no home directory: set --state-dir (DNSWEBHOOK_STATE_DIR)") from error

    def store_place(self) -> str:
        """Where records are kept; shown to people, who may have meant another place."""
        if self.uses_unifi:
            return f"{self.unifi_host}, site {self.unifi_site}"
        unset = "" if self.unifi_host else " (UNIFI_HOST is not set)"
        return f"the embedded store in {self.state_path()}{unset}"

    def filter(self) -> DomainFilter:
        return DomainFilter(
            self.domain_filter,
            self.exclude_domain_filter,
            self.regexp_domain_filter or "",
            self.regexp_domain_filter_exclusion or "",
        )

    def protected(self) -> ProtectedNames:
        return ProtectedNames(self.protect)

    def unifi_settings(self) -> UnifiSettings:
        return UnifiSettings(
            base_url=self.unifi_host or "",
            api_key=self.unifi_api_key or Secret(""),
            user=self.unifi_user or "",
            password=self.unifi_pass or Secret(""),
            site=self.unifi_site,
            api=ApiChoice(self.unifi_api),
            flavour=FlavourChoice(self.unifi_flavour),
            ca_cert=Path(self.unifi_ca_cert) if self.unifi_ca_cert else None,
            tls_fingerprint=self.unifi_tls_fingerprint or "",
            skip_tls_verify=self.unifi_skip_tls_verify,
            request_timeout_s=self.unifi_request_timeout_s,
            parallel_calls=self.write_parallelism,
            state_dir=self.state_path(),
        )
