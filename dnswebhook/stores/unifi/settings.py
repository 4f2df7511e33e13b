"""The user's settings for the controller, checked as far as possible without calling it.

A contradiction is refused rather than resolved by precedence: a user who pins a fingerprint *and* names a CA file wants
one of the two, and we cannot know which.
"""

import re
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from daemonkit.secret import Secret
from dnswebhook.stores.unifi.address import ControllerAddress, Flavour, parse_address

_FINGERPRINT = re.compile(r"[0-9a-f]{64}")
# Bytes of the environment that are not UTF-8: no JSON and no URL can carry them.
_NO_CHARACTER = re.compile("[\ud800-\udfff]")
_QUOTED = re.compile("([\"']).*\\1", re.DOTALL)
_SITE = re.compile("[^\\s/?#\ud800-\udfff]{1,128}")


class ApiChoice(StrEnum):
    AUTO = "auto"
    V2 = "v2"
    INTEGRATION = "integration"


class FlavourChoice(StrEnum):
    AUTO = "auto"
    OS = "os"
    CLASSIC = "classic"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnifiSettings:
    """Raises ValueError at construction, naming the environment variables concerned."""

    base_url: str
    api_key: Secret = field(default_factory=lambda: Secret(""))
    user: str = ""
    password: Secret = field(default_factory=lambda: Secret(""))
    site: str = "default"
    """The internal name (`default`), or with the integration API also the display name or the UUID."""
    api: ApiChoice = ApiChoice.AUTO
    flavour: FlavourChoice = FlavourChoice.AUTO
    ca_cert: Path | None = None
    """PEM bundle that replaces the public certificate authorities."""
    tls_fingerprint: str = ""
    """SHA-256 of the controller's certificate in hexadecimal, colons allowed; replaces verification by authority."""
    skip_tls_verify: bool = False
    request_timeout_s: float = 5.0
    max_response_bytes: int = 64 * 1024 * 1024
    parallel_calls: int = 5
    """How many calls the owner makes at once; determines the size of the connection pool."""
    state_dir: Path | None = None
    """Where the last known API is stored; with None it is kept in memory only."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "api", ApiChoice(self.api))
        object.__setattr__(self, "flavour", FlavourChoice(self.flavour))
        object.__setattr__(self, "tls_fingerprint", _plain_fingerprint(self.tls_fingerprint))
        self._check_credentials()
        self._check_tls()
        self._check_choices()

    @property
    def address(self) -> ControllerAddress:
        return parse_address(self.base_url)

    @property
    def known_flavour(self) -> Flavour | None:
        """The flavour, if the settings alone decide it: set, implied by the URL, or implied by the integration API."""
        if self.flavour is not FlavourChoice.AUTO:
            return Flavour(self.flavour.value)
        if self.api is ApiChoice.INTEGRATION or self.address.names_application:
            return Flavour.OS
        return None

    def _check_credentials(self) -> None:
        if self.api_key and (self.user or self.password):
            raise ValueError("both UNIFI_API_KEY and UNIFI_USER/UNIFI_PASS are set, want only one of them")
        if bool(self.user) != bool(self.password):
            raise ValueError("only one of UNIFI_USER and UNIFI_PASS is set, want both, or UNIFI_API_KEY alone")
        if not (self.api_key or self.user):
            raise ValueError("no credentials are set, want UNIFI_API_KEY (or UNIFI_USER and UNIFI_PASS)")
        if _NO_CHARACTER.search(self.user + self.password.reveal()):
            raise ValueError("UNIFI_USER and UNIFI_PASS must be UTF-8 text")
        key = self.api_key.reveal()
        if _QUOTED.fullmatch(key):  # Docker's env files keep them
            raise ValueError("UNIFI_API_KEY is in quotes, which are part of it: write it without them")
        if _QUOTED.fullmatch(self.user):
            raise ValueError("UNIFI_USER is in quotes, which are part of it: write it without them")
        if " " in key or not self.api_key.fits_header():
            raise ValueError(
                "UNIFI_API_KEY contains characters that no API key has, want the key alone: printable ASCII, no spaces"
            )

    def _check_tls(self) -> None:
        if self.tls_fingerprint and self.ca_cert is not None:
            raise ValueError("both UNIFI_TLS_FINGERPRINT and UNIFI_CA_CERT are set, want only one of them")
        if self.skip_tls_verify and (self.tls_fingerprint or self.ca_cert is not None):
            raise ValueError(
                "UNIFI_SKIP_TLS_VERIFY is set together with UNIFI_TLS_FINGERPRINT or UNIFI_CA_CERT, which it would "
                "switch off: remove it"
            )
        if self.address.scheme == "http" and (self.tls_fingerprint or self.ca_cert is not None):
            raise ValueError("UNIFI_HOST begins with http:// but a certificate check is set, want https://")

    def _check_choices(self) -> None:
        if self.api is ApiChoice.INTEGRATION and not self.api_key:
            raise ValueError("UNIFI_API=integration accepts only UNIFI_API_KEY, not user and password")
        if self.api is ApiChoice.INTEGRATION and self.flavour is FlavourChoice.CLASSIC:
            raise ValueError("UNIFI_API=integration does not exist on UNIFI_FLAVOUR=classic, want v2 or flavour os")
        if self.flavour is FlavourChoice.CLASSIC and self.address.names_application:
            raise ValueError("UNIFI_HOST contains /proxy/network, which contradicts UNIFI_FLAVOUR=classic")
        if not _SITE.fullmatch(self.site):
            raise ValueError(f"UNIFI_SITE {self.site[:130]!r} cannot be a site's internal name such as `default`")
        if self.request_timeout_s <= 0 or self.max_response_bytes < 1024 or self.parallel_calls < 1:
            raise ValueError(
                "want a request timeout above 0 s, a response limit of at least 1024 bytes, at least 1 parallel call; "
                f"got {self.request_timeout_s} s, {self.max_response_bytes} bytes, {self.parallel_calls}"
            )


def _plain_fingerprint(text: str) -> str:
    """Lower-case hexadecimal without colons, the form in which the TLS library compares it."""
    plain = text.strip().lower().removeprefix("sha256").lstrip(":= ").replace(":", "").replace(" ", "")
    if text.strip() and not _FINGERPRINT.fullmatch(plain):
        seen = f"UNIFI_TLS_FINGERPRINT {text[:100]!r}"
        raise ValueError(f"{seen} is not a SHA-256 fingerprint, want 64 hexadecimal digits")
    return plain
