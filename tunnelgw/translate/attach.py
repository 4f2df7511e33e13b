"""One parentRef of a route: the listeners that the route attaches to, or why there is none.

Listeners are checked in steps: does the parentRef mean them (sectionName, port), do they admit the kind and the
namespace, do they have hosts in common with the route. A refusal is about the furthest step that any listener reached.
"""

from collections.abc import Iterable, Sequence

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
    """A listener that a route is attached to, and the route's hosts there."""

    entrance: Entrance
    hostnames: tuple[str, ...]


class Refusal(Part, frozen=True):
    reason: Reason
    message: str


def attach(
    view: View, route: ObjectId, spec: Route, ref: ParentRef, owner: ObjectId, parent: Parent
) -> tuple[Attachment, ...] | Refusal:
    """`owner` is the object that `ref` names, `parent` what is known about it."""
    if parent.refusal:
        return Refusal(Reason.NO_MATCHING_PARENT, parent.refusal)
    meant = [entrance for entrance in parent.entrances if _is_meant(entrance, ref)]
    if not meant:
        # Listeners that would not admit the route are not named: the route's author need not know of them.
        fitting = [entrance for entrance in parent.entrances if _admits(view, entrance, owner.key, route)]
        known = _listed(f"{entrance.name} (port {entrance.port})" for entrance in fitting)
        message = f"{owner} has no listener {_spell(ref)}".rstrip()
        return Refusal(Reason.NO_MATCHING_PARENT, f"{message}; for this route it has: {known}")
    admitting = [entrance for entrance in meant if _admits(view, entrance, owner.key, route)]
    if not admitting:
        return Refusal(Reason.NOT_ALLOWED_BY_LISTENERS, _barred(meant, route, ref, owner))
    attachments = tuple(_attachments(admitting, spec.spec.hostnames))
    if not attachments:
        listed = _listed(entrance.hostname for entrance in admitting)
        return Refusal(
            Reason.NO_MATCHING_LISTENER_HOSTNAME, f"no hostname of the route fits those of {owner}: {listed}"
        )
    return attachments


def _is_meant(entrance: Entrance, ref: ParentRef) -> bool:
    return ref.section_name in ("", entrance.name) and ref.port in (0, entrance.port)


def _admits(view: View, entrance: Entrance, owner: Key, route: ObjectId) -> bool:
    return _takes(entrance, route) and selectors.admits(view, entrance.namespaces, owner.namespace, route.key.namespace)


def _takes(entrance: Entrance, route: ObjectId) -> bool:
    return RouteGroupKind(route.kind, GATEWAY_API) in entrance.kinds


def _barred(meant: Sequence[Entrance], route: ObjectId, ref: ParentRef, owner: ObjectId) -> str:
    """The message for listeners that do not admit the route: about the kind if none takes it, else the namespace."""
    message = f"no listener {_spell(ref)}".rstrip() + f" of {owner} allows routes of kind {route.kind}"
    taking = [entrance for entrance in meant if _takes(entrance, route)]
    if not taking:
        return f"{message}; supportedKinds: {_listed(kind.kind for entrance in meant for kind in entrance.kinds)}"
    wanted = _listed(entrance.namespaces.from_ for entrance in taking)
    return f"{message} and namespace {route.key.namespace}; allowedRoutes.namespaces.from: {wanted}"


def _attachments(entrances: Iterable[Entrance], wanted: tuple[str, ...]) -> Iterable[Attachment]:
    for entrance in entrances:
        common = hostnames.effective(entrance.hostname, wanted)
        if common:
            yield Attachment(entrance, common)


def _spell(ref: ParentRef) -> str:
    return " with ".join(filter(None, (ref.section_name, f"port {ref.port}" if ref.port else "")))


def _listed(words: Iterable[str]) -> str:
    """Each word once, as many as there is room for."""
    return ", ".join(dict.fromkeys(words))[:512] or "none"
