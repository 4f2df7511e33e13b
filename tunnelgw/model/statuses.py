"""What is read from a stored status of any kind. Fields that a kind lacks are empty."""

from typing import Any

from tunnelgw.model.conditions import Condition
from tunnelgw.model.gateways import GatewayAddress, RouteGroupKind
from tunnelgw.model.part import Part
from tunnelgw.model.refs import ParentRef


class StatusEntry(Part, frozen=True):
    """About a listener, a parent or an ancestor."""

    name: str = ""
    controller_name: str = ""
    parent_ref: ParentRef | None = None
    ancestor_ref: ParentRef | None = None
    supported_kinds: tuple[RouteGroupKind, ...] = ()
    attached_routes: int | None = None
    conditions: tuple[Condition, ...] = ()


class AnyStatus(Part, frozen=True):
    conditions: tuple[Condition, ...] = ()
    addresses: tuple[GatewayAddress, ...] = ()
    supported_features: tuple[Any, ...] = ()
    listeners: tuple[StatusEntry, ...] = ()
    attached_listener_sets: int = 0
    parents: tuple[StatusEntry, ...] = ()
    ancestors: tuple[StatusEntry, ...] = ()
