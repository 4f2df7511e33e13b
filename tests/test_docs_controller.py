"""What the controller's manual says is true: options, metrics, conditions and log lines exist, objects are admitted."""

import re

import pytest
import yaml
from prometheus_client import CollectorRegistry

from daemonkit.optionspec import specs_of
from tests.support.manuals import DOCS, manual_of
from tests.support.process import REPOSITORY
from tunnelgw.metrics import DELIVERY_OUTCOMES, PASS_OUTCOMES, PROVIDER_CALLS, STATUS_OUTCOMES, Metrics
from tunnelgw.model.conditions import ConditionType, Reason
from tunnelgw.options import PREFIX, Options
from tunnelgw.provider import errors
from tunnelgw.sources.directory.reading import read_all

MANUAL = manual_of("controller")
SPECS = tuple(specs_of(Options, PREFIX))
GATEWAY_API = (DOCS / "gateway-api.md").read_text(encoding="utf-8")
OBJECTS = re.findall(r"^```yaml\n(.*?)^```$", MANUAL + GATEWAY_API, re.M | re.S)


def section(title: str) -> str:
    return re.split(r"^##? ", MANUAL.partition(f"\n## {title}\n")[2], maxsplit=1, flags=re.M)[0]


@pytest.mark.parametrize("text", OBJECTS, ids=lambda text: str(yaml.safe_load(text.partition("---")[0])["kind"]))
def test_every_object_of_the_manual_is_admitted(text: str) -> None:
    reading = read_all([("manual.yaml", text.encode())])

    assert reading.problems == ()
    assert len(reading.admitted) == text.count("apiVersion:")


def test_the_manual_has_exactly_the_exposed_metrics_with_their_types() -> None:
    families = Metrics(CollectorRegistry()).registry.collect()
    exposed = {f"{each.name}_total" if each.type == "counter" else each.name: each.type for each in families}

    documented = dict(re.findall(r"^\| `(tunnelgw_\w+)` \| (\w+) \|", section("Metrics"), re.M))

    assert documented == {**exposed, "tunnelgw_build_info": "gauge"}


def test_outcomes_of_metrics_are_in_the_manual() -> None:
    missing = [text for text in (*PASS_OUTCOMES, *STATUS_OUTCOMES, *DELIVERY_OUTCOMES) if f"`{text}`" not in MANUAL]

    assert missing == []


def test_the_manual_has_every_call_to_the_provider_and_how_it_may_end() -> None:
    row = next(line for line in section("Metrics").splitlines() if "tunnelgw_provider_call_duration_seconds" in line)
    source = (REPOSITORY / "tunnelgw" / "provider" / "client.py").read_text(encoding="utf-8")
    source += (REPOSITORY / "tunnelgw" / "provider" / "envelope.py").read_text(encoding="utf-8")
    outcomes = {name for name in vars(errors) if re.search(rf"(?:raise|return|=) {name}\(", source)}

    assert outcomes >= {"ProviderUnreachable", "AuthenticationFailed", "RateLimited"}
    assert [each for each in (*PROVIDER_CALLS, "ok", *outcomes) if f"`{each}`" not in row] == []


def test_conditions_of_our_own_are_in_the_manual() -> None:
    ours = [type_.value for type_ in ConditionType if type_.value.startswith("tunnelgw.dev/")]

    missing = [type_ for type_ in ours if f"| `{type_}` |" not in section("Statuses")]

    assert ours
    assert missing == []


def test_every_condition_and_reason_that_a_status_may_have_is_explained() -> None:
    text = MANUAL + GATEWAY_API
    names = [each.value for each in (*ConditionType, *Reason)]

    assert [name for name in names if not re.search(rf"\b{re.escape(name)}\b", text)] == []


def test_options_of_the_manual_exist() -> None:
    known = {spec.flag for spec in SPECS} | {"--all", "--client", "--json"}  # of other commands
    prose = re.sub(r"^```.*?^```$", "", MANUAL, flags=re.M | re.S)
    named = set(re.findall(r"`(--[a-z-]+)", prose))

    assert named - known == set()
