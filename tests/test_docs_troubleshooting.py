"""Every alert and log line is on the troubleshooting pages, and nothing there is made up."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.manuals import DOCS
from tests.support.process import REPOSITORY

CHART_ALERTS = REPOSITORY / "helm" / "tunnelgw" / "files" / "alerts"
RULES = {
    "dnswebhook": REPOSITORY / "examples" / "alerts" / "dnswebhook.yaml",
    "proxy": CHART_ALERTS / "proxy.yaml",
    "controller": CHART_ALERTS / "controller.yaml",
}
PACKAGES = {"dnswebhook": "dnswebhook", "proxy": "proxy", "controller": "tunnelgw"}
PAGES = {daemon: (DOCS / f"{daemon}-troubleshooting.md").read_text(encoding="utf-8") for daemon in PACKAGES}
TUNNEL = (DOCS / "tunnel.md").read_text(encoding="utf-8")
every_daemon = pytest.mark.parametrize("daemon", PACKAGES)


def section(page: str, title: str) -> str:
    return page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def sources_of(*packages: str) -> str:
    files = (path for package in packages for path in sorted((REPOSITORY / package).rglob("*.py")))
    return "\n".join(path.read_text(encoding="utf-8") for path in files)


def lines_told(page: str) -> Iterator[str]:
    """From the first column of the table; three dots at the end stand for more text."""
    for row in re.findall(r"^\| (`.*?`) \|", section(page, "Log lines"), re.M):
        yield from (line.removesuffix(" ...") for line in re.findall(r"`([^`]+)`", row) if line != "msg")


@every_daemon
def test_every_alert_has_a_row_that_says_what_to_do(daemon: str) -> None:
    rules = yaml.safe_load(Path(RULES[daemon]).read_text(encoding="utf-8"))
    alerts = [rule["alert"] for group in rules["groups"] for rule in group["rules"]]
    rows = re.findall(r"^\| (`.*?`) \| [^|]+ \| [^|]+ \|$", section(PAGES[daemon], "Alerts"), re.M)

    assert sorted(name for row in rows for name in re.findall(r"`(\w+)`", row)) == sorted(alerts)


@every_daemon
def test_every_documented_log_line_exists_in_the_sources(daemon: str) -> None:
    sources = sources_of(PACKAGES[daemon], "daemonkit")
    told = list(lines_told(PAGES[daemon]))

    assert len(told) > 10
    assert [line for line in told if f'"{line}' not in sources] == []


@every_daemon
def test_every_warning_and_error_of_a_daemon_is_documented(daemon: str) -> None:
    written = set(re.findall(r'\.(?:warning|error)\(\s*"([^"]+)"', sources_of(PACKAGES[daemon])))
    told = (*lines_told(PAGES[daemon]), *(re.findall(r"`([^`\n]+)`", TUNNEL) if daemon == "proxy" else ()))

    assert len(written) > 10
    assert [line for line in sorted(written) if not line.startswith(told)] == []


FOREIGN = {
    # the kernel, OpenSSL, journald
    "Address already in use", "Connection refused",
    "certificate is not yet valid",
    "certificate verify failed", "Hostname mismatch", "handshake failure", "unrecognized name",
    "Suppressed ... messages from tunnelgw-proxy.service", "records.sqlite3: Permission denied ...",
    # external-dns
    "owner id does not match", "is longer than 63 characters. Cannot create endpoint", "failed to connect to webhook",
    *(f"failed to {call} with code {code}" for call in ("get records", "apply changes") for code in (500, 502)),
    "failed to AdjustEndpoints with code 503", "unexpected status code 404", "wrong content type returned from server",
    "context deadline exceeded", "Client.Timeout exceeded while awaiting headers",
    "webhook response body exceeds the configured max size", "--policy must be set explicitly",
    # the UniFi controller, the tunnel's provider
    "Invalid hostname (invalid fields: key)", "List accounts endpoint does not support account owned tokens",
    "content-type: text/html",
    # applications and clients
    "HTTPS required", "Host check error", "Invalid Host header", "Upgrade request required", "unable to upgrade to tcp",
    "Session ID unknown",
    # commands and settings
    "docker exec", "kubectl exec", "nslookup app.example.com 192.168.1.1", "service: http://...",
    # a constant with another name in it
    "this is no Pod, and there is no ~/.kube/config",
}  # fmt: skip
"""What symptoms quote that is not a text of ours."""
SYMPTOMS = {
    "dnswebhook-troubleshooting": ("dnswebhook",),
    "proxy-troubleshooting": ("proxy",),
    "controller-troubleshooting": ("tunnelgw", "proxy"),
    "tunnel": ("proxy",),
}


def texts_of(*packages: str) -> Iterator[str]:
    """All texts in the sources, in which NUL stands for what is filled in."""
    for package in packages:
        for path in (REPOSITORY / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                match node:
                    case ast.Constant(value=str(text)):
                        yield text
                    case ast.Constant(value=bytes(octets)):
                        yield octets.decode("latin-1")
                    case ast.JoinedStr(values=parts):
                        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "\0" for part in parts)


@pytest.mark.parametrize("page", SYMPTOMS)
def test_messages_that_symptoms_quote_are_texts_of_the_sources(page: str) -> None:
    ours = "\n".join(texts_of("daemonkit", *SYMPTOMS[page]))
    prose = re.sub(r"^```.*?^```$", "", (DOCS / f"{page}.md").read_text(encoding="utf-8"), flags=re.M | re.S)
    quoted = [text for row in re.findall(r"^\| (.*?) \|", prose, re.M) for text in re.findall(r"`([^`]+)`", row)]
    messages = [text for text in quoted if " " in text and not text.startswith("--") and text not in FOREIGN]

    missing = [
        text
        for text in messages
        for part in re.split(r"\.\.\.|'x'|\bx\b|[0-9]+", text)  # names and numbers are examples
        if part.strip(" :") not in ours
    ]

    assert len(messages) > 3
    assert missing == []
