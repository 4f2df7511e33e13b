"""Which namespaces may attach: `from` is None, Same, Selector or All; label selectors apply to Namespace objects."""

import re

from tunnelgw.model.gateways import LabelRequirement, LabelSelector, NamespacesFrom
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.translate.queries import View

NAME_LABEL = "kubernetes.io/metadata.name"
"""The API server gives it to every namespace."""

_NAME = r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_PREFIX = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*"
_LABEL_KEY = re.compile(rf"((?=[^/]{{1,253}}/){_PREFIX}/)?{_NAME}")
_LABEL_VALUE = re.compile(rf"({_NAME})?")


def admits(view: View, allowed: NamespacesFrom, own: str, namespace: str) -> bool:
    """Whether an object in `namespace` may attach to one in namespace `own`. An invalid selector admits none."""
    match allowed.from_:
        case "All":
            return True
        case "Same":
            return namespace == own
        case "Selector":
            selector = allowed.selector
            return selector is not None and not problem(selector) and _selects_namespace(view, selector, namespace)
    return False


def problem(selector: LabelSelector | None) -> str:
    """Why a selector is invalid, so that it selects nothing; empty: it is valid."""
    if selector is None:
        return "`from` is Selector, but there is no `selector`"
    for key, value in selector.match_labels.items():
        if found := _key_problem(key) or _value_problem(key, value):
            return found
    return next(filter(None, map(_requirement_problem, selector.match_expressions)), "")


def problem_of(allowed: NamespacesFrom) -> str:
    """Why this is invalid, so that it admits nothing; empty: it is valid."""
    if allowed.from_ not in ("None", "Same", "Selector", "All"):
        return f"`from` is {allowed.from_!r}, want None, Same, Selector or All"
    return problem(allowed.selector) if allowed.from_ == "Selector" else ""


def _selects_namespace(view: View, selector: LabelSelector, namespace: str) -> bool:
    """Whether `selector` selects the namespace.

    While the Namespace object has not been read, only its name is known. Then it is selected only if `selector` asks
    for nothing else, since it is not known which labels it lacks.
    """
    found = view.get(Kind.NAMESPACE, Key("", namespace))
    if found is None and not _asks_for_name_alone(selector):
        return False
    return _selects(selector, {**(found.metadata.labels if found else {}), NAME_LABEL: namespace})


def _asks_for_name_alone(selector: LabelSelector) -> bool:
    return {*selector.match_labels, *(each.key for each in selector.match_expressions)} <= {NAME_LABEL}


def _selects(selector: LabelSelector, labels: dict[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in selector.match_labels.items()) and all(
        _holds(requirement, labels) for requirement in selector.match_expressions
    )


def _holds(requirement: LabelRequirement, labels: dict[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
    return value is None


def _requirement_problem(requirement: LabelRequirement) -> str:
    key, operator, values = requirement.key, requirement.operator, requirement.values
    if operator in ("In", "NotIn"):
        if not values:
            return f"operator {operator} of label {key!r} has no `values`"
    elif operator not in ("Exists", "DoesNotExist"):
        return f"operator of label {key!r} is {operator!r}, want In, NotIn, Exists or DoesNotExist"
    elif values:
        return f"operator {operator} of label {key!r} takes no `values`"
    return _key_problem(key) or next(filter(None, (_value_problem(key, value) for value in values)), "")


def _key_problem(key: str) -> str:
    return "" if _LABEL_KEY.fullmatch(key) else f"{key!r} is not the key of a label"


def _value_problem(key: str, value: str) -> str:
    return "" if _LABEL_VALUE.fullmatch(value) else f"{value!r} is not a value that label {key!r} can have"
