"""Doors: where requests come in. Each turns the bytes of its connections into exchanges and back.

`Doors` is all that a worker needs. The tunnel makes its connections to the edge with `H2Connection` itself.
"""

from proxy.doors.doors import Doors
from proxy.doors.h2connection import H2Connection
from proxy.doors.member import Keeper, Member
from proxy.doors.terms import Begin, Caches, Terms, terms_of

__all__ = ["Begin", "Caches", "Doors", "H2Connection", "Keeper", "Member", "Terms", "terms_of"]
