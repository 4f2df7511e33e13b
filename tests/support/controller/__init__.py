"""A simulator of the UniFi network controller's DNS record APIs, over real HTTP(S), for tests, demo and benchmarks.

It reproduces what is known of the appliance: the v2 "static-dns" API and the integration API's DNS policies over one
store, logins, the usual faults, and the effect of writes on the gateway's resolver. Where the appliance's behaviour is
not known, the stricter one is simulated. `Controller` is the entry point; `python -m tests.support.controller` runs it
alone.
"""

from tests.support.controller import faults
from tests.support.controller.faults import Fault, Hang, Huge, Operation, Reply, Reset, Slow, Truncate
from tests.support.controller.quirks import ExpiredAnswer, PutRefusal, Quirks
from tests.support.controller.routes import Flavour
from tests.support.controller.rows import Api, Draft, Origin, RecordType, Row, generated_drafts
from tests.support.controller.simulator import Controller

__all__ = [
    "Api",
    "Controller",
    "Draft",
    "ExpiredAnswer",
    "Fault",
    "Flavour",
    "Hang",
    "Huge",
    "Operation",
    "Origin",
    "PutRefusal",
    "Quirks",
    "RecordType",
    "Reply",
    "Reset",
    "Row",
    "Slow",
    "Truncate",
    "faults",
    "generated_drafts",
]
