"""What threads decode is known to msgspec before they start.

It learns a type when it first meets it, and Python code runs meanwhile: another thread that decodes the same type then
finds it half known, which ends the process (SIGSEGV, msgspec 0.22.0).
"""

import subprocess
import sys

import pytest

LEARNS = """
import importlib, msgspec, sys
module, *names = sys.argv[1:]
found = importlib.import_module(module)
learnt = []
def look(frame, event, argument):
    if frame.f_code.co_name == "get_class_annotations":
        learnt.append(event)
sys.setprofile(look)
for name in names:
    msgspec.json.Decoder(getattr(found, name))
sys.setprofile(None)
sys.exit(len(learnt))
"""
TYPES = {
    "proxy.supervisor.slot": ["Stats"],
    "proxy.supervisor.tunnel": ["Update"],
    "tunnelgw.deliver.configclient": ["PutAnswer", "_ErrorAnswer"],
    "tunnelgw.provider.client": ["Account", "Tunnel", "Configuration"],
    "tunnelgw.sources.kubernetes.discovery": ["_Served"],
}


@pytest.mark.parametrize("module", TYPES)
def test_nothing_is_left_to_learn_after_the_import(module: str) -> None:
    assert subprocess.run([sys.executable, "-c", LEARNS, module, *TYPES[module]], check=False).returncode == 0
