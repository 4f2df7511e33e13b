"""GatewayClasses with our controllerName, and the GatewayClassConfig that each may name."""

import ipaddress
import re

import msgspec

from proxy.document import canonical_address
from tunnelgw.model.conditions import ConditionType, Finding, Reason
from tunnelgw.model.gateways import GatewayClass, is_ip_address
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.model.own import TUNNEL_ID, TUNNELGW, GatewayClassConfig, GatewayClassConfigSpec, ProxySettings
from tunnelgw.model.part import Part
from tunnelgw.model.refs import ParametersRef
from tunnelgw.model.snapshot import Index, Snapshot
from tunnelgw.translate.queries import View
from tunnelgw.translate.settings import fit
from tunnelgw.translate.verdicts import BEFORE, NOT_READ, ClassVerdict, false, true

BUNDLE_VERSION = "gateway.networking.k8s.io/bundle-version"
SUPPORTED_VERSIONS = ("v1.4.", "v1.5.", "v1.6.", "v1.7.")
"""Releases of Gateway API that we understand: they serve all kinds that we read as v1."""

_CRDS = ("gatewayclasses", "gateways", "httproutes", "grpcroutes")
_TUNNEL_ID = re.compile(TUNNEL_ID)
_HOSTNAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NUMBERS = re.compile(r"[0-9.]+")


def controllers_instead(snapshot: Snapshot, controller_name: str) -> tuple[str, ...]:
    """The controllerNames of all GatewayClasses, if there are classes and none is ours."""
    classes = snapshot.all(Kind.GATEWAY_CLASS).values()
    seen = {each.spec.controller_name for each in classes if isinstance(each, GatewayClass)}
    return () if controller_name in seen else tuple(sorted(seen))


class ClassSetup(Part, frozen=True):
    """What the Gateways of a class have in common."""

    config: GatewayClassConfigSpec
    problem: str = ""
    """Why the class is not accepted; empty: it is."""
    unread: str = ""
    """Why the configuration that it named before is used; empty: the one that it names now is used."""


def class_setup(view: View, name: str) -> ClassSetup | None:
    """A query. None: there is no such class, or it is another controller's."""
    found = view.get(Kind.GATEWAY_CLASS, Key("", name))
    if not isinstance(found, GatewayClass) or found.spec.controller_name != view.controller_name:
        return None
    if found.previous_spec is None or found.spec.parameters_ref is None:
        return _with_parameters(view, found.spec.parameters_ref)
    setup = _with_parameters(view, found.previous_spec.parameters_ref)
    unread = f"{found.spec.parameters_ref.kind} {found.spec.parameters_ref.name} {NOT_READ}"
    if setup.problem:
        return ClassSetup(setup.config, unread)
    return ClassSetup(setup.config, unread=unread + BEFORE)


def class_verdict(view: View, name: str) -> ClassVerdict | None:
    """A query. None: not ours to judge."""
    setup = view.ask(class_setup, name)
    if setup is None:
        return None
    problem = setup.problem or setup.unread
    accepted = (
        false(ConditionType.ACCEPTED, Reason.INVALID_PARAMETERS, problem)
        if problem
        else true(ConditionType.ACCEPTED, Reason.ACCEPTED, "the class is served by this controller")
    )
    return ClassVerdict((accepted, *_left_out(view, setup), view.ask(supported_version, "")))


def settings_class(view: View, _: str) -> str:
    """A query: the class whose settings the shared proxies use: the oldest one with settings. Empty: none has any."""
    for item in view.bucket(Index.CLASSES_BY_CONTROLLER, Key("", view.controller_name)):
        setup = view.ask(class_setup, item.key.name)
        if setup is not None and setup.config.proxy is not None:
            return item.key.name
    return ""


def supported_version(view: View, _: str) -> Finding:
    """A query: whether we know the installed release of Gateway API. Without CRDs our own schemas apply."""
    for name in _CRDS:
        crd = view.get(Kind.CUSTOM_RESOURCE_DEFINITION, Key("", f"{name}.gateway.networking.k8s.io"))
        version = crd.metadata.annotations.get(BUNDLE_VERSION, "without a version") if crd else ""
        if crd and not version.startswith(SUPPORTED_VERSIONS):
            message = (
                f"Gateway API {version[:64]} is installed (CRD {crd.metadata.name}), this controller knows "
                f"{', '.join(version + 'x' for version in SUPPORTED_VERSIONS)}; it goes on with what it understands"
            )
            return false(ConditionType.SUPPORTED_VERSION, Reason.UNSUPPORTED_VERSION, message)
    return true(ConditionType.SUPPORTED_VERSION, Reason.SUPPORTED_VERSION, "the installed Gateway API is supported")


def config_problem(config: GatewayClassConfigSpec) -> str:
    """Why no Gateway can be served with this configuration; empty: there is no problem."""
    if config.tunnel_id and not _TUNNEL_ID.fullmatch(config.tunnel_id):
        return f"tunnelID is {config.tunnel_id[:64]!r}, want a UUID in lower case"
    if config.publish not in ("", "Tunnel", "Direct"):
        return f"publish is {config.publish[:64]!r}, want Tunnel or Direct"
    if config.direct is not None:
        for address in config.direct.addresses:
            if problem := _address_problem(address):
                return f"direct.addresses has {address[:64]!r}, which is {problem}"
        if config.direct.addresses and config.direct.service:
            return "direct has both `addresses` and `service`, want one of the two"
        for address in config.direct.service.addresses if config.direct.service else ():
            is_hostname = _HOSTNAME.fullmatch(address) and not _NUMBERS.fullmatch(address)
            if not is_hostname and (
                problem := _address_problem(address, "neither an IP address nor a hostname in lower case")
            ):
                return f"direct.service.addresses has {address[:64]!r}, which is {problem}"
    return ""


def _address_problem(text: str, otherwise: str = "not an IP address") -> str:
    """Why clients cannot be sent here, as external-dns and other readers of the status would do; empty: they can."""
    if not is_ip_address(text):
        return otherwise
    address = ipaddress.ip_address(canonical_address(text))  # as the proxy would bind it
    is_of_no_host = address.is_unspecified or address.is_multicast or (address.version == 6 and address.is_link_local)
    return "not the address of a host: want one at which clients reach the proxy" if is_of_no_host else ""


def left_out(wanted: ProxySettings | None) -> tuple[Finding, ...]:
    """A finding about settings that a proxy would refuse."""
    slips = fit(wanted).left_out
    return (true(ConditionType.SETTINGS_LEFT_OUT, Reason.INVALID_PARAMETERS, "; ".join(slips)),) if slips else ()


def _left_out(view: View, setup: ClassSetup) -> tuple[Finding, ...]:
    """The same for a class, whose settings may be unused altogether."""
    if setup.config.proxy is None:
        return ()
    deciding = view.ask(settings_class, "")
    decided = view.ask(class_setup, deciding)
    if decided is None or decided.config.proxy == setup.config.proxy:
        return left_out(setup.config.proxy)
    message = f"`proxy` is not used: the shared proxies have that of GatewayClass {deciding}, which is older"
    return (true(ConditionType.SETTINGS_LEFT_OUT, Reason.CONFLICTED, message),)


def _with_parameters(view: View, ref: ParametersRef | None) -> ClassSetup:
    nothing = GatewayClassConfigSpec()
    if ref is None:
        return ClassSetup(nothing)
    if (ref.group, ref.kind) != (TUNNELGW, Kind.GATEWAY_CLASS_CONFIG):
        return ClassSetup(
            nothing, f"parametersRef names a {ref.group}/{ref.kind}, want {TUNNELGW}/{Kind.GATEWAY_CLASS_CONFIG}"
        )
    if ref.namespace:
        return ClassSetup(nothing, f"parametersRef has namespace {ref.namespace}, but {ref.kind} has cluster scope")
    config = view.get(Kind.GATEWAY_CLASS_CONFIG, Key("", ref.name))
    if not isinstance(config, GatewayClassConfig):
        return ClassSetup(nothing, f"{ref.kind} {ref.name} does not exist")
    if problem := config_problem(config.spec):
        return ClassSetup(nothing, f"{ref.kind} {ref.name}: {problem}")
    return ClassSetup(_at_home(config.spec, view.home_namespace))


def _at_home(config: GatewayClassConfigSpec, home_namespace: str) -> GatewayClassConfigSpec:
    """The configuration with the Service's namespace filled in, which must not depend on the namespace of a Gateway."""
    direct = config.direct
    if direct is None or direct.service is None or direct.service.namespace:
        return config
    service = msgspec.structs.replace(direct.service, namespace=home_namespace)
    return msgspec.structs.replace(config, direct=msgspec.structs.replace(direct, service=service))
