"""msgspec knows all types that threads decode before these start.

It learns a type when it first meets it, and Python code runs meanwhile: another thread that decodes the same type then
finds it half known, which ends the process (SIGSEGV, msgspec 0.22.0).
"""

import subprocess
import sys

import pytest

LEARNS = """
import importlib, msgspec, operator, sys
module, *names = sys.argv[1:]
found = importlib.import_module(module)
learnt = []
def look(frame, event, argument):
    if frame.f_code.co_name == "get_class_annotations":
        learnt.append(event)
sys.setprofile(look)
for name in names:
    msgspec.json.Decoder(operator.attrgetter(name)(found))
sys.setprofile(None)
sys.exit(len(learnt))
"""
TYPES = {
    "dnswebhook.wire": ["webhook.ReceivedEndpoint", "webhook.WantedEndpoint"],
    "proxy.supervisor.slot": ["Stats"],
    "proxy.supervisor.workerprocess": ["FromWorker"],
    "tunnelgw.deliver.configclient": ["PutAnswer", "_ErrorAnswer"],
    "tunnelgw.provider.client": ["Account", "Tunnel", "Configuration"],
    "tunnelgw.sources.kubernetes.discovery": ["_Served"],
    "tunnelgw.status.objects": ["_Class", "_Gateway", "_ListenerSet", "_Route", "_Policy"],
}


@pytest.mark.parametrize("module", TYPES)
def test_msgspec_knows_all_decoded_types_after_the_import(module: str) -> None:
    assert subprocess.run([sys.executable, "-c", LEARNS, module, *TYPES[module]], check=False).returncode == 0
