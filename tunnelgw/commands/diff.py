"""`tunnelgw diff`: what the controller would change at the proxies and at the provider.

Nothing is written. Private keys are compared by their digests, since a proxy shows nothing else of them.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from proxy import document
from tunnelgw.commands import show
from tunnelgw.commands.inputs import Inputs
from tunnelgw.deliver.configclient import ConfigClient
from tunnelgw.deliver.courier import Undelivered
from tunnelgw.deliver.means import Means
from tunnelgw.deliver.targets import (
    NAMING_TUNNELS,
    TAKEN,
    Discovery,
    Plane,
    Tunnel,
    left_tunnels,
    named_tunnels,
    planes,
    tunnel_name,
    tunnels,
)
from tunnelgw.provider.client import ProviderClient
from tunnelgw.provider.errors import ProviderError
from tunnelgw.provider.ingress import EVERYTHING
from tunnelgw.translate.pipeline import Translation

_STYLES = {
    "add": "green",
    "remove": "red",
    "change": "yellow",
    "conflict": "bold red",
    "error": "bold red",
    "keep": "dim",
}
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_SECTIONS = ("listeners", "backends", "routes")


class Difference(msgspec.Struct, frozen=True, omit_defaults=True):
    action: str
    """add, remove, change; keep: a foreign rule; conflict: a foreign rule for a hostname of ours; error."""
    target: str
    part: str = ""
    message: str = ""


class NotAllAsked(Exception):
    """Something could not be compared. All the rest has been shown, with the reasons for what is missing."""


def diff(inputs: Inputs, discovery: Discovery, means: Means, *, as_json: bool) -> bool:
    """Returns whether nothing would change. Raises NotAllAsked."""
    translation = Translation(inputs.snapshot, discovery.controller_name, discovery.namespace)
    wanted = {
        name: (plane, document.decode(translation.documents[name].encode(0)))
        for name, plane in translation.keep(planes, discovery).items()
        if name in translation.documents
    }
    found = [*_of_planes(wanted, means), *_of_tunnels(inputs, translation, discovery, means)]
    if as_json:
        show.as_json(found)
    elif found:
        lines = [(each.action, each.target, each.part, each.message) for each in found]
        show.rows(("", "where", "what", ""), lines, _STYLES)
    for problem in (*inputs.problems, *inputs.skipped):
        show.note(str(problem))
    for name, (plane, serving) in wanted.items():
        if not plane.endpoints and (serving.routes or serving.listeners):
            show.note(f"the document of data plane {name} cannot be compared: it has no proxies")
    if any(each.action == "error" for each in found):
        raise NotAllAsked("not everything could be compared, see the rows that begin with `error`")
    if not any(each.action != "keep" for each in found):
        show.note("nothing would change")
        return True
    return False


def _of_planes(wanted: Mapping[str, tuple[Plane, document.Document]], means: Means) -> Iterator[Difference]:
    for name, (plane, serving) in wanted.items():
        for url in plane.endpoints:
            if url in plane.taken:
                yield Difference("error", f"{url} for {name}", message=TAKEN)
            else:
                yield from _of_proxy(url, plane, serving, means)


def _of_tunnels(inputs: Inputs, translation: Translation, discovery: Discovery, means: Means) -> Iterator[Difference]:
    for tunnel in translation.keep(tunnels, discovery).values():
        yield from _of_tunnel(tunnel, translation.hosts(tunnel.tunnel_id), means)
    for tunnel in _former_tunnels(inputs, translation, discovery):
        yield from _of_tunnel(tunnel, frozenset(), means)


def _former_tunnels(inputs: Inputs, translation: Translation, discovery: Discovery) -> list[Tunnel]:
    """Tunnels that a controller that starts now would empty. None while a refused object may name them."""
    if any(problem.entry is None or problem.entry.table in NAMING_TUNNELS for problem in inputs.problems):
        return []
    named = translation.keep(named_tunnels, discovery)
    return [tunnel for id_, tunnel in left_tunnels(inputs.snapshot, discovery).items() if id_ not in named]


def _of_proxy(url: str, plane: Plane, wanted: document.Document, means: Means) -> Iterator[Difference]:
    if plane.token.problem:
        yield Difference("error", url, message=plane.token.problem)
        return
    try:
        client = ConfigClient(means.proxy(url), plane.token.secret)
        try:
            held = client.document()
        finally:
            client.close()
        now = _parts(held or b"{}")
    except _UNREADABLE as error:
        yield Difference("error", url, message=f"not a tunnelgw-proxy: its answer to GET /config: {error}")
        return
    except (Undelivered, ValueError) as error:
        yield Difference("error", url, message=str(error))
        return
    then = _parts(document.encode_redacted(wanted))
    for part in sorted({*now, *then}):
        if now.get(part) != then.get(part):
            yield Difference("add" if part not in now else "remove" if part not in then else "change", url, part)


def _parts(encoded: bytes) -> Mapping[str, Any]:
    """The named parts of a document, and its settings, each by a name for people. Raises the errors in _UNREADABLE."""
    content = msgspec.json.decode(encoded, type=dict[str, Any])
    content.pop("version", None)
    parts: dict[str, Any] = {}
    for section in _SECTIONS:
        for place, part in enumerate(msgspec.convert(content.pop(section, ()), list[dict[str, Any]])):
            kind = f" ({part['kind']})" if part.get("kind") else ""
            parts[f"{section.removesuffix('s')} {part.get('name', place)}{kind}"] = part
    return parts | {f"setting {name}": value for name, value in content.items()}


def _of_tunnel(tunnel: Tunnel, hosts: frozenset[str], means: Means) -> Iterator[Difference]:
    name = tunnel_name(tunnel.tunnel_id)
    if tunnel.token.secret is None:
        yield Difference("error", name, message=tunnel.token.problem)
        return
    client = ProviderClient(tunnel.token.secret, means.provider_url)
    try:
        _, revision = means.ingress(tunnel, client).compare({hostname or EVERYTHING for hostname in hosts})
    except ProviderError as error:
        yield Difference("error", name, message=str(error))
        return
    finally:
        client.close()
    for action, hostnames in (("add", revision.added), ("remove", revision.removed), ("keep", revision.foreign)):
        for hostname in hostnames:
            yield Difference(action, name, f"hostname {hostname}")
    for conflict in revision.conflicts:
        yield Difference("conflict", name, f"hostname {conflict.hostname}", f"it has service {conflict.service}")
    if revision.is_changed and not (revision.added or revision.removed):
        yield Difference("change", name, "order or content of our rules")
