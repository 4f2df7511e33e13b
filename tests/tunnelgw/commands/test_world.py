"""What the commands know of a folder of manifests."""

from pathlib import Path

import msgspec

from tunnelgw.commands.world import STATUS, from_files
from tunnelgw.model.gateways import Gateway
from tunnelgw.model.kinds import Kind
from tunnelgw.model.snapshot import Entry
from tunnelgw.sources.directory.ledger import Ledger
from tunnelgw.sources.directory.statuses import StatusFolder

MANIFEST = """\
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: infra}
spec:
  gatewayClassName: main
  listeners: [{name: http, port: 80, protocol: HTTP}]
"""


def the_gateway(folder: Path) -> Gateway:
    (found,) = from_files([str(folder)]).snapshot.all(Kind.GATEWAY).values()
    assert isinstance(found, Gateway)
    return found


def test_a_gateway_holds_the_addresses_that_its_status_shows(tmp_path: Path) -> None:
    (tmp_path / "gateway.yaml").write_text(MANIFEST)
    gateway = the_gateway(tmp_path)
    assert gateway.held == ()
    entry = Entry(Kind.GATEWAY, gateway.key)
    ledger = Ledger(tmp_path / STATUS)
    known = ledger.note(entry, "of the manifest", "2026-01-01T00:00:00Z")
    ledger.save()
    metadata = msgspec.structs.replace(gateway.metadata, uid=known.uid)
    status = b'{"addresses": [{"type": "IPAddress", "value": "192.0.2.1"}]}'

    StatusFolder(tmp_path / STATUS).write(entry, msgspec.structs.replace(gateway, metadata=metadata), status)

    assert the_gateway(tmp_path).held == ("192.0.2.1",)
