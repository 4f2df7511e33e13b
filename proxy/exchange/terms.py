"""Terms: the settings of exchanges, computed once per table. An exchange keeps those that it began with.

An exchange may last for days. If one has begun under each of a thousand documents, the worker keeps a thousand terms.
So terms hold no table, and those with equal `forwarding` settings share what is computed from these for connections.
"""

import math

import msgspec

from proxy import document
from proxy.document import seconds
from proxy.exchange.forwarding import Forwarding
from proxy.routing import Rule


class Terms(msgspec.Struct, frozen=True):
    forwarding: Forwarding
    request_timeout_s: float
    """For rules that set none. Infinite if there is no limit, as is the next."""
    idle_timeout_s: float

    def request_timeout_of(self, rule: Rule) -> float:
        if rule.request_timeout_s is None:
            return self.request_timeout_s
        return rule.request_timeout_s or math.inf


def terms_of(settings: document.Settings, before: Terms | None = None) -> Terms:
    """`before` are the terms of the previous table."""
    forwarding, limits = None if before is None else before.forwarding, settings.limits
    if forwarding is None or forwarding.spec != settings.forwarding:
        forwarding = Forwarding(settings.forwarding)
    return Terms(
        forwarding,
        seconds(limits.request_timeout) or math.inf,
        seconds(limits.stream_idle_timeout) or math.inf,
    )
