"""The units at work under a real systemd, set up with the very commands of the manuals."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.manuals import DOCS
from tests.support.requirements import not_possible_here
from tests.systemd.machine import Machine, NotPossible

MANUALS: Final = {"tunnelgw-proxy": "proxy.md", "tunnelgw": "controller.md", "dnswebhook": "dnswebhook.md"}
"""The proxy before the controller, which uses its token."""
READY: Final = {"tunnelgw-proxy": 8082, "tunnelgw": 9081, "dnswebhook": 8080}
"""Ports of /healthz and /readyz."""
NOT_TYPED: Final = ("python3 -m venv", "/opt/tunnelgw/bin/pip", "journalctl -f")
"""The machine has the programs already; following a log has no end."""
BACKEND: Final = (
    "systemd-run --quiet --unit=backend /opt/tunnelgw/bin/python3 /opt/tunnelgw/source/examples/backend.py 3000"
)
DOCUMENT: Final = """\
{"listeners": [{"name": "web", "port": 80}],
 "routes": [{"hostnames": ["a.example"], "backends": [{"address": "127.0.0.1:3000"}]}]}
"""
MANIFESTS: Final = """\
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: direct}
spec:
  controllerName: tunnelgw.dev/tunnel-gateway-controller
  parametersRef: {group: tunnelgw.dev, kind: GatewayClassConfig, name: direct}
---
apiVersion: tunnelgw.dev/v1alpha1
kind: GatewayClassConfig
metadata: {name: direct}
spec: {direct: {addresses: [127.0.0.1]}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: lan, namespace: infra}
spec:
  gatewayClassName: direct
  listeners: [{name: http, port: 80, protocol: HTTP}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: a, namespace: infra}
spec:
  parentRefs: [{name: lan}]
  hostnames: [a.example]
  rules: [{backendRefs: [{group: tunnelgw.dev, kind: Backend, name: here}]}]
---
apiVersion: tunnelgw.dev/v1alpha1
kind: Backend
metadata: {name: here, namespace: infra}
spec: {host: 127.0.0.1, port: 3000}
"""
TAKEN_IN_CONTAINERS: Final = """\
[Service]
ProtectProc=default
ProtectControlGroups=no
ProtectKernelTunables=no
NoNewPrivileges=no
LoadCredential=
"""
"""The drop-in for every unit in LXC images."""
SERVED: Final = "curl --fail --silent --header 'Host: a.example' http://127.0.0.1/"


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    try:
        with Machine(tmp_path) as booted:
            yield booted
    except NotPossible as lack:
        not_possible_here(str(lack))


def section_of(name: str) -> str:
    page = (DOCS / MANUALS[name]).read_text(encoding="utf-8")
    return page.partition("\n## Bare host with systemd\n")[2].partition("\n## ")[0]


def blocks_of(name: str, language: str) -> list[str]:
    """The blocks of a manual about a bare host, without the lines that are not run here."""
    found = re.findall(rf"^ *```{language}\n(.*?)^ *```$", section_of(name), re.S | re.M)
    return [
        "\n".join(line for line in textwrap.dedent(block).splitlines() if not line.startswith(NOT_TYPED))
        for block in found
    ]


def block_with(name: str, words: str) -> str:
    [block] = [block for block in blocks_of(name, "sh") if words in block]
    return f"cd /opt/tunnelgw/source\n{block}"


def blocks_until(name: str, words: str) -> str:
    """All blocks up to the first with `words`."""
    blocks = blocks_of(name, "sh")
    last = next(place for place, block in enumerate(blocks) if words in block)
    return "\n".join(["cd /opt/tunnelgw/source", *blocks[: last + 1]])


def bare_host_block(section: str) -> str:
    """The only block of shell commands in this section of the page about what the manuals share."""
    text = (DOCS / "bare-host.md").read_text(encoding="utf-8").partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    [block] = re.findall(r"^```sh\n(.*?)^```$", text, re.S | re.M)
    return "\n".join(line for line in block.splitlines() if not line.startswith(NOT_TYPED))


def set_up(machine: Machine, *names: str) -> None:
    for name in names:
        machine.run(blocks_until(name, f"systemd/{name}.service"), stdin="a-key\n")
        if name == "dnswebhook":
            # Without a controller: its manual says what to remove then.
            machine.run("sed -i /^UNIFI_/d /etc/dnswebhook/dnswebhook.env")
            [drop_in] = [block for block in blocks_of(name, "ini") if "LoadCredential=\n" in f"{block}\n"]
            add_drop_in(machine, name, drop_in)
            machine.run("systemctl enable --now dnswebhook")


def add_drop_in(machine: Machine, name: str, text: str) -> None:
    """As `systemctl edit` writes it."""
    folder = f"/etc/systemd/system/{name}.service.d"
    machine.run(f"mkdir -p {folder}; cat > {folder}/override.conf; systemctl daemon-reload", stdin=text)


def main_pid(machine: Machine, name: str) -> str:
    return property_of(machine, name, "MainPID")


def property_of(machine: Machine, name: str, wanted: str) -> str:
    return machine.run(f"systemctl show -P {wanted} {name}").strip()


def send_document(machine: Machine) -> None:
    file = "/tmp/document.json"
    machine.run(f"cat > {file}", stdin=DOCUMENT)
    machine.run(block_with("tunnelgw-proxy", "curl -T document.json").replace("document.json", file))


def test_each_daemon_starts_as_its_manual_says_without_root_and_with_minimal_capabilities(machine: Machine) -> None:
    set_up(machine, *MANUALS)

    for name, port in READY.items():
        assert property_of(machine, name, "ActiveState") == "active"
        machine.run(f"curl --fail --silent http://127.0.0.1:{port}/healthz")
        status = machine.run(f"cat /proc/{main_pid(machine, name)}/status")
        assert re.findall(r"^Uid:\s+(?!0\s)\d+", status, re.M), status
        bound = "0000000000000400" if name == "tunnelgw-proxy" else "0000000000000000"  # CAP_NET_BIND_SERVICE
        assert re.findall(r"^Cap(?:Eff|Bnd):\s+(\w+)", status, re.M) == [bound, bound], status
        assert property_of(machine, name, "NRestarts") == "0"


def test_a_document_is_served_on_port_80_and_again_after_restart_and_kill(machine: Machine) -> None:
    set_up(machine, "tunnelgw-proxy")
    machine.run(BACKEND)

    send_document(machine)

    machine.until(SERVED, "served")
    machine.run(f"systemctl restart tunnelgw-proxy; {SERVED}")
    killed = main_pid(machine, "tunnelgw-proxy")
    machine.run(f"kill -KILL {killed}")
    machine.until(SERVED, "served again")
    assert main_pid(machine, "tunnelgw-proxy") != killed


def test_manifests_are_served_and_root_can_read_their_statuses(machine: Machine) -> None:
    set_up(machine, "tunnelgw-proxy", "tunnelgw")
    machine.run(BACKEND)

    machine.run("cat > /etc/tunnelgw/manifests/all.yaml", stdin=MANIFESTS)

    machine.until(SERVED, "served")
    show = block_with("tunnelgw", "tunnelgw status")
    machine.until(show, "all well")  # the status is written once the proxy has answered
    assert "well\tHTTPRoute infra/a" in machine.run(show)


def test_a_reload_reads_the_document_file_again_and_ignores_an_invalid_one(machine: Machine) -> None:
    set_up(machine, "tunnelgw-proxy")
    machine.run(BACKEND)
    file = "/etc/tunnelgw-proxy/document.json"
    machine.run(f"cat > {file}", stdin=DOCUMENT.replace("a.example", "b.example"))
    machine.run(f"sed -i 's/^#PROXY_CONFIG=/PROXY_CONFIG=/' {file.replace('document.json', 'tunnelgw-proxy.env')}")
    machine.run("systemctl restart tunnelgw-proxy")
    machine.run(SERVED, fails=True)

    machine.run(f"cat > {file}; systemctl reload tunnelgw-proxy", stdin=DOCUMENT)
    machine.until(SERVED, "served")
    machine.run(f"cat > {file}; systemctl reload tunnelgw-proxy", stdin="{")

    machine.until("journalctl --unit tunnelgw-proxy --priority warning --grep 'not a JSON document'", "told")
    machine.run("journalctl --unit tunnelgw-proxy --priority warning --grep 'configuration loaded'", fails=True)
    machine.run("journalctl --unit tunnelgw-proxy --grep '^{.*configuration loaded'")
    machine.run(SERVED)


def test_credentials_work_in_an_lxc_container_with_the_drop_in_of_the_manual(
    machine: Machine,
) -> None:
    lxc = "/run/systemd/system/service.d"
    machine.run(f"mkdir -p {lxc}; cat > {lxc}/zzz-lxc-service.conf", stdin=TAKEN_IN_CONTAINERS)
    section = (DOCS / "bare-host.md").read_text(encoding="utf-8").partition("\n## LXC containers\n")[2]
    [[file, text]] = re.findall(r"^```ini\n# (/etc/\S+)\n(.*?)^```$", section, re.S | re.M)
    machine.run(block_with("tunnelgw-proxy", "systemd/tunnelgw-proxy.service"), fails=True)
    machine.until_said("tunnelgw-proxy", "cannot read the file '/run/credentials/")
    add_drop_in(machine, "tunnelgw-proxy", text)
    machine.run("systemctl restart tunnelgw-proxy", fails=True)

    machine.run(f"cat > {file}; systemctl daemon-reload; systemctl restart tunnelgw-proxy", stdin=text)

    machine.run(f"curl --fail --silent http://127.0.0.1:{READY['tunnelgw-proxy']}/healthz")
    status = machine.run(f"cat /proc/{main_pid(machine, 'tunnelgw-proxy')}/status")
    assert re.findall(r"^NoNewPrivs:\s+(\d)", status, re.M) == ["1"], status


def test_the_restarts_of_an_upgrade_leave_all_daemons_ready(machine: Machine) -> None:
    set_up(machine, *READY)

    machine.run(bare_host_block("Upgrade"))

    for port in READY.values():
        machine.run(f"curl --fail --silent http://127.0.0.1:{port}/healthz")


def test_uninstalling_as_the_manual_says_leaves_no_settings_and_no_state(machine: Machine) -> None:
    set_up(machine, "tunnelgw-proxy")
    send_document(machine)
    places = "/etc/tunnelgw-proxy /etc/systemd/system/tunnelgw-proxy.service /var/lib/tunnelgw-proxy"
    machine.run(f"ls -d {places} /var/lib/private/tunnelgw-proxy")

    machine.run(bare_host_block("Uninstall"))

    for place in [*places.split(), "/var/lib/private/tunnelgw-proxy"]:
        machine.run(f"! test -e {place} && ! test -L {place}")


def test_a_stop_lets_an_active_request_finish(machine: Machine) -> None:
    set_up(machine, "tunnelgw-proxy")
    machine.run(BACKEND)
    send_document(machine)
    machine.until(SERVED, "served")

    answer = machine.run(r"""
        exec 3<>/dev/tcp/127.0.0.1/80
        printf 'POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 4\r\n\r\n' >&3
        systemctl stop --no-block tunnelgw-proxy
        while curl --silent http://127.0.0.1/; do :; done
        printf 'body' >&3
        head --lines=1 <&3
    """)

    assert answer.splitlines()[-1].strip() == "HTTP/1.1 200 OK"
    machine.until("! systemctl is-active tunnelgw-proxy", "stopped")
    assert property_of(machine, "tunnelgw-proxy", "Result") == "success"


def test_the_watchdog_restarts_a_hung_daemon(machine: Machine) -> None:
    name = "tunnelgw-proxy"
    add_drop_in(machine, name, "[Service]\nWatchdogSec=5s\nRestartSec=0\n")
    set_up(machine, name)
    frozen = main_pid(machine, name)

    machine.run(f"kill -STOP {frozen}")

    machine.until(f"systemctl is-active {name} && [ $(systemctl show -P MainPID {name}) != {frozen} ]", "replaced")
    machine.until_said(name, f"{name}.service: Watchdog timeout")


@pytest.mark.parametrize("name", MANUALS)
def test_a_daemon_with_an_invalid_setting_logs_it_and_is_not_restarted(machine: Machine, name: str) -> None:
    set_up(machine, *(["tunnelgw-proxy"] if name == "tunnelgw" else []), name)
    machine.run(f"systemctl stop {name}; echo LOG_LEVEL=loud >> /etc/{name}/{name}.env")

    machine.run(f"systemctl start {name}", fails=True)

    assert property_of(machine, name, "ActiveState") == "failed"
    assert property_of(machine, name, "NRestarts") == "0"
    machine.until_said(name, "LOG_LEVEL")


def test_the_webhooks_commands_see_the_daemons_records(machine: Machine) -> None:
    set_up(machine, "dnswebhook")
    record = '{"Create": [{"dnsName": "a.example.com", "recordType": "A", "targets": ["192.0.2.7"]}]}'
    machine.run(
        "curl --fail --silent --header 'Content-Type: application/external.dns.webhook+json;version=1' "
        "--data @- http://127.0.0.1:8888/records",
        stdin=record,
    )

    listed = machine.run(block_with("dnswebhook", "dnswebhook records").replace("UNIFI_API_KEY_FILE=", "UNUSED="))

    assert "a.example.com" in listed
