"""What the documents say is true: transcripts run, names exist, links resolve, manifests fit the options."""

import dataclasses
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from daemonkit.optionspec import OptionSpec, specs_of
from dnswebhook import app, chains, errors, fit, journal, notes, provider, readiness
from dnswebhook.apply import Outcome
from dnswebhook.canonical import DropReason
from dnswebhook.metrics import ROUTES, STORE_OPERATIONS, Metrics
from dnswebhook.options import PREFIX, Options
from dnswebhook.stores.unifi import credentials, integration, writes
from dnswebhook.wishes import RefusalReason, SkipReason
from tests.support.manuals import DOCS, manual_of
from tests.support.process import REPOSITORY
from tests.support.requirements import not_possible_here
from tests.support.transcript_proxy_world import ProxyWorld
from tests.support.transcripts import Story, is_logged, same, stories, world_of
from tests.support.units import service

MANUAL = manual_of("dnswebhook")
PAGES = sorted(DOCS.glob("*.md"))
TOLD = [(page, story) for page in PAGES for story in stories(page.read_text(encoding="utf-8"))]
SPECS: tuple[OptionSpec, ...] = tuple(specs_of(Options, PREFIX))
[VALUES] = re.findall(r"^```yaml\n(.*?)^```$", MANUAL, re.M | re.S)
MANIFESTS = (REPOSITORY / "examples" / "dnswebhook.yaml").read_text(encoding="utf-8")
VARIABLES = {spec.env for spec in SPECS} | {spec.file_env for spec in SPECS if spec.is_secret}
DEFAULTS: dict[str, Any] = {field.name: field.default for field in dataclasses.fields(Options)}


def needs(program: str) -> None:
    if shutil.which(program) is None:
        not_possible_here(f"{program} is not installed, so the documents cannot be tested with it")


# Transcripts


@pytest.mark.parametrize(("page", "story"), TOLD, ids=[f"{page.stem} {story.name}" for page, story in TOLD])
def test_the_documented_commands_print_what_is_documented(page: Path, story: Story) -> None:
    needs("curl")
    needs("openssl")
    with world_of(page) as world:
        for block in story.blocks:
            world.change(block.words)
            for command in block.commands:
                seen = world.run(command.text)
                assert same(command.output, seen), told_apart(page, command.line, command.text, command.output, seen)
            for line in block.log:
                world.wait_for_log(partial(is_logged, line))


def told_apart(page: Path, line: int, command: str, documented: tuple[str, ...], seen: list[str]) -> str:
    name = f"docs/{page.name}"
    parts = [f"{name}:{line + 1}: $ {command}", "documented:", *documented, "seen:", *seen]
    return "\n".join([*parts, f"if this is right: python -m tests.support.transcripts {name}"])


def test_comparison_of_transcripts_ignores_ids_and_fingerprints_only() -> None:
    fingerprint, other = ":".join(["AB"] * 32), ":".join(["CD"] * 32)

    assert same(["X-Request-Id: 0123456789ab", "", "200"], ["X-Request-Id: ba9876543210", "200"])
    assert same([f"SHA-256 {fingerprint}, x"], [f"SHA-256 {other}, x"])
    assert not same(["200"], ["503"])
    assert not same(['{"recordTTL":0}'], ['{"recordTTL":300}'])
    assert not same([], ["more than was documented"])


@pytest.mark.parametrize("page", sorted({page for page, _ in TOLD}), ids=lambda page: page.stem)
def test_a_page_with_output_of_curl_mentions_curlrc(page: Path) -> None:
    commands = [
        command.text for told, story in TOLD if told == page for each in story.blocks for command in each.commands
    ]

    assert not any(command.startswith("curl ") for command in commands) or "`~/.curlrc`" in without_blocks(page)


def test_a_console_block_without_a_setup_comment_is_an_error() -> None:
    with pytest.raises(ValueError, match="line 2: a console block"):
        stories("text\n```console\n$ true\n```\n")


def test_blocks_that_continue_share_a_story() -> None:
    fences = "```console\n$ true \\\n    --more\nout\n```\n"
    first, second = f"<!-- transcript: v2 -->\n{fences}", f"<!-- transcript: continued stopped -->\n{fences}"

    [story] = stories(f"# T\n\n{first}\ntext\n\n{second}")

    assert [block.words for block in story.blocks] == [("v2",), ("continued", "stopped")]
    assert story.blocks[0].commands[0].text == "true \\\n    --more"
    assert story.blocks[0].commands[0].output == ("out",)


def test_the_port_of_a_stopped_backend_stays_reserved() -> None:
    """Another program there would answer in its place."""
    with ProxyWorld({}) as world:
        world.change(["alone", "stopped=3000"])

        seen = world.run("""python -c 'import socket; socket.socket().bind(("127.0.0.1", 3000))'""")

    assert seen[-1] == "OSError: [Errno 98] Address already in use"


# Names


def test_every_option_is_on_the_options_page() -> None:
    page = (DOCS / "options.md").read_text(encoding="utf-8")

    missing = [name for name in sorted(VARIABLES | {spec.flag for spec in SPECS}) if f"`{name}`" not in page]

    assert missing == []


def test_every_variable_with_our_prefix_in_the_manual_exists() -> None:
    named = set(re.findall(rf"\b{PREFIX}[A-Z_]+\b", MANUAL))

    assert named - VARIABLES == set()


def test_the_manual_has_exactly_the_exposed_metrics() -> None:
    exposed = {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in Metrics(CollectorRegistry()).registry.collect()
    }
    rows = r"^\| `((?:dnswebhook|external_dns_unifi)_[a-z_]+)` \| (?:gauge|counter|histogram)"
    documented = set(re.findall(rows, MANUAL, re.M))

    assert documented == exposed | {"dnswebhook_build_info"}


@pytest.mark.parametrize("reasons", [DropReason, RefusalReason, SkipReason], ids=lambda reasons: reasons.__name__)
def test_every_reason_has_a_row_in_the_manual(reasons: type[DropReason | RefusalReason | SkipReason]) -> None:
    missing = [reason for reason in reasons if not re.search(rf"^\| `{reason}` \| \S", MANUAL, re.M)]

    assert missing == []


def test_label_values_and_fixed_texts_are_in_the_manual() -> None:
    labels = [f"`{value}`" for value in (*Outcome, *STORE_OPERATIONS, *ROUTES)]
    verdicts = [f"| {text} |" for text in (readiness.NOT_PROBED, readiness.STOPPING, *readiness._TEXTS.values())]

    missing = [text for text in (*labels, *verdicts) if text not in MANUAL]

    assert missing == []


def test_every_outcome_of_a_call_to_the_store_is_in_the_manual() -> None:
    outcomes = {each.reason for each in vars(errors).values() if isinstance(each, type) and hasattr(each, "reason")}

    assert len(outcomes) > 10
    assert [outcome for outcome in sorted({*outcomes, "ok"}) if f"`{outcome}`" not in MANUAL] == []


def refusals() -> list[tuple[str, str]]:
    """Status code and category of each error in app.py."""
    source = Path(app.__file__).read_text(encoding="utf-8")
    return re.findall(r'_Refused\(\s*(\d{3}), "([a-z ]+)"', source)


def test_every_status_code_with_its_category_has_a_row_in_the_manual() -> None:
    answers = refusals()
    missing = [answer for answer in answers if not re.search(rf"^\| {answer[0]} \|.*`{answer[1]}`", MANUAL, re.M)]

    assert len(answers) > 10, "the expression above does not fit app.py any more"
    assert missing == []


def test_limits_of_the_reference_are_the_defaults_of_the_options() -> None:
    options = (DOCS / "options.md").read_text(encoding="utf-8")
    defaults = dict(re.findall(r"^\| `--[^|]+ \| `(\w+)` \| `([^`]+)` \|", options, re.M))
    limits = re.findall(r"^\| [^|]+ \| ([\d.]+) ?(\w+)?[^|]* \| `((?:DNSWEBHOOK|UNIFI)_\w+)` \|$", MANUAL, re.M)

    assert len(limits) > 5
    assert [each for each in limits if defaults[each[2]] != each[0] + each[1]] == []


def test_what_the_manual_says_about_records_has_the_numbers_of_the_code() -> None:
    text = " ".join(MANUAL.split())

    assert (writes.PUT_PAUSE_S, "Ten minutes later, writing in place is tried again" in text) == (600.0, True)
    assert (journal.MAX_AGE_S, "ignores notes that are older than an hour" in text) == (3600.0, True)
    assert (notes.LATE_LISTINGS, "its ownership record stays for ten passes" in text) == (10, True)
    assert f"if there are at least {provider.MIN_SETS_FOR_DELETE_GUARD}." in text
    assert f"tried again after {credentials.FIRST_LOGIN_PAUSE_S:.0f} seconds" in text
    assert f"through more than {chains.MAX_NAMES} names" in text
    assert f"for at most {fit.MAX_NAMED_DROPS} of its targets" in text
    assert f"probed every {readiness.PROBE_INTERVAL_S:.0f} seconds" in text
    assert f"no answer within {readiness.PROBE_TIMEOUT_S:.0f} s" in text
    assert f"returns {integration.PAGE_LIMIT} rows per page" in text
    assert (integration.PARALLEL_PAGES, "asks for four pages at once" in text) == (4, True)


def test_every_error_that_external_dns_can_get_is_on_the_troubleshooting_page() -> None:
    """The reference says what it is; somebody who sees it wants to know what to do."""
    categories = {category for code, category in refusals() if code.startswith("5") or code == "413"} - {"caller gone"}
    page = (DOCS / "dnswebhook-troubleshooting.md").read_text(encoding="utf-8")

    assert len(categories) > 7
    assert [category for category in sorted(categories) if f"`{category}`" not in page] == []


def test_addresses_of_metrics_are_those_of_the_options_and_of_the_units() -> None:
    page = (DOCS / "monitoring.md").read_text(encoding="utf-8")
    options = (DOCS / "options.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\S+) \| `(\S+)` \| `(\S+)` \| `(\w+)` \|", page, re.M)

    assert [daemon for daemon, *_ in rows] == ["dnswebhook", "tunnelgw-proxy", "tunnelgw"]
    for daemon, default, address, variable in rows:
        settings = (REPOSITORY / "systemd" / f"{daemon}.env").read_text(encoding="utf-8")
        assert f"| `{variable}` | `{default}` |" in options
        assert f"\n{variable}={address}\n" in settings
        assert f'- job_name: {daemon}\n  static_configs: [{{targets: ["{address}"]}}]' in page


# Links


def anchors_of(page: Path) -> set[str]:
    """As common renderers derive them from headings."""
    headings = re.findall(r"^#+ (.*)$", without_blocks(page), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def without_blocks(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def broken_links(page: Path) -> Iterator[str]:
    for target in re.findall(r"\]\(([^)\s]+)\)", without_blocks(page)):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        other = (page.parent / name).resolve() if name else page
        if not other.exists() or (anchor and anchor not in anchors_of(other)):
            yield target


@pytest.mark.parametrize(
    "page",
    [*PAGES, REPOSITORY / "README.md", REPOSITORY / "CHANGELOG.md"],
    ids=lambda page: f"{page.parent.name} {page.name}",
)
def test_links_resolve(page: Path) -> None:
    assert list(broken_links(page)) == []


def test_the_index_links_to_every_page() -> None:
    index = without_blocks(DOCS / "README.md")

    assert [page.name for page in PAGES if f"]({page.name})" not in index and page.name != "README.md"] == []


def test_docs_pages_and_sections_named_outside_the_docs_exist() -> None:
    suffixes = {".py", ".yaml", ".service", ".env", ".txt", ".json", ".toml", ".cfg"}
    folders = ("containers", "daemonkit", "dnswebhook", "examples", "helm", "proxy", "systemd", "tools", "tunnelgw")
    files = [path for folder in folders for path in (REPOSITORY / folder).rglob("*") if path.suffix in suffixes]

    named = {
        (path.relative_to(REPOSITORY).as_posix(), page, title)
        for path in files
        for page, title in re.findall(r'docs/([\w-]+\.md)(?:, "([^"\n]+)")?', path.read_text(encoding="utf-8"))
    }
    missing = [
        each
        for each in sorted(named)
        if not (DOCS / each[1]).exists()
        or (each[2] and each[2].lower().replace(" ", "-") not in anchors_of(DOCS / each[1]))
    ]

    assert len(named) > 10
    assert missing == []


# Installation


def test_the_unit_is_installed_as_the_manual_says() -> None:
    unit = service("dnswebhook")
    program = Path(shlex.split(unit["ExecStart"])[0])

    assert f"python3 -m venv {program.parent.parent}" in MANUAL
    assert unit["LoadCredential"].partition(":")[2] in MANUAL
    assert unit["EnvironmentFile"].removeprefix("-") in MANUAL


def test_the_manifests_match_the_options() -> None:
    objects = {each["kind"]: each for each in yaml.safe_load_all(MANIFESTS)}
    pod = objects["Deployment"]["spec"]["template"]["spec"]
    client, daemon = pod["containers"]
    mounts = {mount["name"] for mount in daemon["volumeMounts"]}

    assert {variable["name"] for variable in daemon["env"]} <= VARIABLES
    assert f"--webhook-provider-url=http://{DEFAULTS['api_addr']}" in client["args"]
    assert [port["containerPort"] for port in daemon["ports"]] == [DEFAULTS["health_addr"].port]
    assert daemon["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert daemon["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert mounts == {volume["name"] for volume in pod["volumes"]}
    assert pod["terminationGracePeriodSeconds"] > DEFAULTS["grace_period_s"]


def test_the_settings_of_the_manifests_are_accepted_before_the_fingerprint_is_known(tmp_path: Path) -> None:
    """A Pod whose options are refused ends before `dnswebhook check` can show the fingerprint in it."""
    objects = {each["kind"]: each for each in yaml.safe_load_all(MANIFESTS)}
    _, container = objects["Deployment"]["spec"]["template"]["spec"]["containers"]
    (tmp_path / "api-key").write_text("key", encoding="ascii")
    settings = {each["name"]: each["value"] for each in container["env"]}
    settings |= {"UNIFI_HOST": "https://127.0.0.1:1", "UNIFI_API_KEY_FILE": str(tmp_path / "api-key")}
    settings |= {"DNSWEBHOOK_STATE_DIR": str(tmp_path)}

    command = [sys.executable, "-m", "dnswebhook", "check"]
    seen = subprocess.run(command, env=settings, capture_output=True, text=True, check=False, timeout=60)

    assert (seen.returncode, "failed\tconnection" in seen.stdout) == (1, True), seen.stderr


def test_external_dns_commands_in_the_manual_use_the_registry_settings_of_the_manifests() -> None:
    """A pass that removes records has to find the ownership records of the chart, the manifests or the unit."""
    *_, deployment = yaml.safe_load_all(MANIFESTS)
    client, _ = deployment["spec"]["template"]["spec"]["containers"]
    naming = {argument for argument in client["args"] if re.match("--(registry|txt-(prefix|wildcard))", argument)}
    commands = re.findall(r"external-dns --kubeconfig(?:.*\\\n)+.*", MANUAL)

    assert len(commands) == 2
    assert [naming - set(command.split()) for command in commands] == [set(), set()]


def test_the_chart_values_match_the_manifests() -> None:
    chart = yaml.safe_load(VALUES)
    [deployment] = [each for each in yaml.safe_load_all(MANIFESTS) if each["kind"] == "Deployment"]
    pod = deployment["spec"]["template"]["spec"]
    client, daemon = pod["containers"]
    sidecar = chart["provider"]["webhook"]

    assert sidecar["env"] == daemon["env"]
    assert sidecar["extraVolumeMounts"] == daemon["volumeMounts"]
    assert chart["extraVolumes"] == pod["volumes"]
    assert sidecar["securityContext"] == daemon["securityContext"]
    assert sidecar["readinessProbe"]["httpGet"]["path"] == daemon["readinessProbe"]["httpGet"]["path"]
    assert chart["terminationGracePeriodSeconds"] == pod["terminationGracePeriodSeconds"]
    [volumes] = chart["podAnnotations"].values()
    assert chart["podAnnotations"].items() <= deployment["spec"]["template"]["metadata"]["annotations"].items()
    assert {*volumes.split(",")} == {each["name"] for each in pod["volumes"] if "emptyDir" in each}
    assert f"{sidecar['image']['repository']}:{sidecar['image']['tag']}" == daemon["image"]
    assert f"--txt-owner-id={chart['txtOwnerId']}" in client["args"]
    assert set(chart["extraArgs"]) <= set(client["args"])
    assert [f"--managed-record-types={name}" for name in chart["managedRecordTypes"]] == client["args"][-3:]
