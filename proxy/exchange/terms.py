"""Terms: the table and settings of exchanges, computed once per table. An exchange keeps those it began with."""

import math

import msgspec

from proxy.document import seconds
from proxy.exchange.forwarding import Forwarding
from proxy.routing import Rule, Table


class Terms(msgspec.Struct, frozen=True):
    table: Table
    forwarding: Forwarding
    request_timeout_s: float
    """For rules that set none. Infinite if there is no limit, as is the next."""
    idle_timeout_s: float

    def request_timeout_of(self, rule: Rule) -> float:
        if rule.request_timeout_s is None:
            return self.request_timeout_s
        return rule.request_timeout_s or math.inf


def terms_of(table: Table) -> Terms:
    limits = table.settings.limits
    return Terms(
        table,
        Forwarding(table.settings.forwarding),
        seconds(limits.request_timeout) or math.inf,
        seconds(limits.stream_idle_timeout) or math.inf,
    )
