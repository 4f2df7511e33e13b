"""A route and one of its parentRefs: the listeners that it is attached to, or why there is none.

Listeners are asked in four steps: are they meant (sectionName, port), do they admit the kind and the namespace, do they
have hosts in common. The furthest step that some listener reached is the obstacle that is told.
"""

from collections.abc import Iterable

from tunnelgw.model.conditions import Reason
from tunnelgw.model.gateways import RouteGroupKind
from tunnelgw.model.meta import Key
from tunnelgw.model.part import Part
from tunnelgw.model.refs import GATEWAY_API, ParentRef
from tunnelgw.model.routes import Route
from tunnelgw.translate import hostnames, selectors
from tunnelgw.translate.listeners import Entrance, Parent
from tunnelgw.translate.queries import View
from tunnelgw.translate.verdicts import ObjectId


class Attachment(Part, frozen=True):
    """A listener that has a route, with the hosts of the route there."""

    entrance: Entrance
    hostnames: tuple[str, ...]


class Refusal(Part, frozen=True):
    reason: Reason
    message: str


def attach(
    view: View, route: ObjectId, spec: Route, ref: ParentRef, owner: ObjectId, parent: Parent
) -> tuple[Attachment, ...] | Refusal:
    """`owner` is what `ref` names, `parent` what is known of it."""
    if parent.refusal:
        return Refusal(Reason.NO_MATCHING_PARENT, parent.refusal)
    meant = [entrance for entrance in parent.entrances if _is_meant(entrance, ref)]
    if not meant:
        return Refusal(Reason.NO_MATCHING_PARENT, f"{owner} has no listener {_spell(ref)}".rstrip())
    admitting = [entrance for entrance in meant if _admits(view, entrance, owner.key, route)]
    if not admitting:
        message = f"no listener of {owner} {_spell(ref)}".rstrip()
        return Refusal(
            Reason.NOT_ALLOWED_BY_LISTENERS,
            f"{message} allows routes of kind {route.kind} and namespace {route.key.namespace}",
        )
    attachments = tuple(_attachments(admitting, spec.spec.hostnames))
    if not attachments:
        listed = ", ".join(entrance.hostname for entrance in admitting)
        return Refusal(
            Reason.NO_MATCHING_LISTENER_HOSTNAME, f"no hostname of the route fits those of {owner}: {listed[:512]}"
        )
    return attachments


def _is_meant(entrance: Entrance, ref: ParentRef) -> bool:
    return ref.section_name in ("", entrance.name) and ref.port in (0, entrance.port)


def _admits(view: View, entrance: Entrance, owner: Key, route: ObjectId) -> bool:
    return RouteGroupKind(route.kind, GATEWAY_API) in entrance.kinds and selectors.admits(
        view, entrance.namespaces, owner.namespace, route.key.namespace
    )


def _attachments(entrances: Iterable[Entrance], wanted: tuple[str, ...]) -> Iterable[Attachment]:
    for entrance in entrances:
        common = hostnames.effective(entrance.hostname, wanted)
        if common:
            yield Attachment(entrance, common)


def _spell(ref: ParentRef) -> str:
    return " with ".join(filter(None, (ref.section_name, f"port {ref.port}" if ref.port else "")))
