"""What the proxy's manual says is true: names exist, tables are complete, examples are those of the folder."""

import dataclasses
import json
import re
import sys
from pathlib import Path

import msgspec
import pytest

from daemonkit.httperrors import category
from daemonkit.optionspec import specs_of
from daemonkit.values import size
from proxy import document
from proxy.accesslog import lines
from proxy.backend import h2link, keeping, resolver
from proxy.backend.stream import Reason
from proxy.commands import main as commands
from proxy.exchange import answers, attempts, mirrors, relay, untaken
from proxy.h1.limits import DEFAULT_LIMITS
from proxy.options import PREFIX, Options
from proxy.pattern import automaton, syntax
from proxy.stats import REFUSAL_CAUSES
from proxy.supervisor import edgesearch, edgetrust
from proxy.supervisor import tunnel as tunnel_state
from proxy.tunnel import dialling, heartbeat, packetsize, retry
from proxy.tunnel.failures import FailureCause
from tests.support.manuals import DOCS, manual_of
from tests.support.process import REPOSITORY
from tests.support.transcripts import files
from tools.fieldpage import make_field_page

MANUAL = manual_of("proxy")
REFERENCE = (DOCS / "proxy-document.md").read_text(encoding="utf-8")
SCHEMA = (DOCS / "proxy-document.schema.json").read_text(encoding="utf-8")
METRICS = (DOCS / "proxy-metrics.md").read_text(encoding="utf-8")
FIELDS = (DOCS / "proxy-document-fields.md").read_text(encoding="utf-8")
EXAMPLES = sorted((REPOSITORY / "examples" / "proxy").glob("*.json"))
SOURCES = [*(REPOSITORY / "proxy" / "routing").glob("*.py"), *(REPOSITORY / "proxy" / "exchange").glob("*.py")]
SPECS = tuple(specs_of(Options, PREFIX))


# Examples


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_a_valid_document(path: Path) -> None:
    assert document.decode(path.read_bytes()).routes


def test_the_reference_shows_every_example_file_except_the_demo_verbatim() -> None:
    shown = files(REFERENCE)

    assert shown == {
        f"examples/proxy/{path.name}": path.read_text(encoding="utf-8") for path in EXAMPLES if path.stem != "demo"
    }


def test_the_document_in_the_readme_is_valid() -> None:
    [text] = re.findall(r"^```json\n(.*?)^```$", (REPOSITORY / "README.md").read_text(encoding="utf-8"), re.M | re.S)

    assert document.decode(text.encode()).listeners


# Names and tables


def test_the_fields_page_is_generated_from_the_schema_and_has_every_field() -> None:
    objects = json.loads(SCHEMA)["$defs"]
    sections = {part.partition("\n")[0]: part for part in FIELDS.split("\n## ")}

    missing = [
        f"{name}.{field}"
        for name, schema in objects.items()
        if name in sections
        for field in schema["properties"]
        if f"| `{field}` |" not in sections[name]
    ]

    assert missing == []
    assert make_field_page(SCHEMA) == FIELDS


def test_every_variable_and_flag_that_the_manual_names_exists(capsys: pytest.CaptureFixture[str]) -> None:
    variables = {spec.env for spec in SPECS} | {spec.file_env for spec in SPECS if spec.is_secret}
    with pytest.raises(SystemExit):
        commands.run(["explain", "--help"], {})
    flags = {spec.flag for spec in SPECS} | set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    named = re.findall(r"`(--[a-z-]+)", MANUAL)

    assert set(re.findall(rf"\b{PREFIX}[A-Z_]+\b", MANUAL)) - variables == set()
    assert named
    assert set(named) - flags == set()


def test_every_limit_of_the_document_is_in_the_manual_with_its_default() -> None:
    rows = re.findall(r"^\| [^|]+ \| ([^|]+) \|.*`limits\.(\w+)`", MANUAL, re.M)
    fields = {field.encode_name: field.default for field in msgspec.structs.fields(document.Limits)}

    documented = {name: default for default, name in rows}

    assert documented.keys() | {"requestTimeout", "backendIdleTimeout"} == fields.keys()
    for name, default in documented.items():
        if default != "none":
            assert amount(default) == amount(str(fields[name])), name


def test_limits_that_any_page_names_are_fields_of_the_document() -> None:
    fields = {field.encode_name for field in msgspec.structs.fields(document.Limits)}
    named = {
        name for page in DOCS.glob("*.md") for name in re.findall(r"`limits\.(\w+)", page.read_text(encoding="utf-8"))
    }

    assert len(named) > 5
    assert named - fields == set()


def test_the_fixed_limits_are_in_the_manual() -> None:
    rows = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \| fixed \|", MANUAL, re.M))
    fields, head_kib = DEFAULT_LIMITS.max_fields, DEFAULT_LIMITS.max_head_bytes // 1024

    assert {
        "header fields of an HTTP/1.1 request": f"{fields}",
        "trailers over HTTP/1.1": f"{DEFAULT_LIMITS.max_trailer_bytes // 1024} KiB, {fields} fields",
        "head of a backend's response": f"{head_kib} KiB, over HTTP/1.1 {fields} fields",
        "data other than bodies that waits for an HTTP/2 backend which sends but does not read": (
            f"{h2link.MAX_UNREAD_BYTES >> 20} MiB per connection"
        ),
        "bodies of one worker that clients over HTTP/2, or backends, have not taken, "
        f"and heads of more than {untaken.LARGE_HEAD_FIELDS} fields": f"{untaken.MAX_UNTAKEN_BYTES >> 20} MiB",
        "all bodies that one worker keeps for retries": f"{relay.MAX_KEPT_BYTES >> 20} MiB",
        "how far a mirror is behind the client": (
            f"{mirrors.MAX_BEHIND_BYTES >> 20} MiB per request; {mirrors.OWN_BYTES >> 10} KiB "
            f"while all mirrors of one worker together are {mirrors.MAX_SHARED_BYTES >> 20} MiB behind; "
            f"{mirrors.MAX_TOTAL_BYTES >> 20} MiB together"
        ),
    } == rows


def amount(text: str) -> float:
    """The value of a number, size or duration as people write it."""
    plain = text.replace(",", "").replace(" ", "").replace("min", "m")
    if re.fullmatch(r"[0-9]+(B|KiB|MiB)?", plain):
        return size(0)(plain)
    return document.seconds(plain)


def test_what_the_manual_says_about_connections_to_backends_has_the_numbers_of_the_code() -> None:
    text = " ".join(MANUAL.partition("\n## Backends\n")[2].partition("\n## ")[0].split())
    times = {3: "three", 10: "ten"}

    assert f"up to {times[attempts._MAX_REFUSALS]} times if the backend says" in text
    assert f"with GOAWAY, up to {times[attempts._MAX_DEPARTURES]} times" in text
    assert f"nothing has come for {keeping.SILENCE_S:.0f} s" in text
    assert f"the next PING follows after {keeping.PINGS_APART_S:.0f} s" in text
    assert f"looked up again every {resolver.RENEW_S:.0f} seconds" in text
    assert f"are kept for {resolver.RENEW_S:.0f} s at most" in text
    assert keeping.MAX_AGE_S == 600.0
    assert "none longer than ten minutes" in text


def test_what_the_page_of_the_tunnel_says_has_the_numbers_of_the_code() -> None:
    text = " ".join((DOCS / "tunnel.md").read_text(encoding="utf-8").split())

    assert f"checks again every {tunnel_state.PROBE_PERIOD_S:.0f} s." in text
    assert (
        f"at most {retry.FIRST_CAP_S:.0f} s, then {2 * retry.FIRST_CAP_S:.0f} s, up to {retry.MAX_CAP_S:.0f} s" in text
    )
    assert f"been registered for {retry.GOOD_PERIOD_S:.0f} s is dialled again within {retry.QUICK_CAP_S:.0f} s" in text
    assert (edgesearch.SEARCH_AGAIN_S, "at most once a minute" in text) == (60.0, True)
    assert f"takes longer than {edgesearch.SEARCH_PATIENCE_S:.0f} s, the known ones" in text
    assert f"not answered a PING for {heartbeat.PING_PERIOD_S:.0f} s" in text
    assert f"`TCP_MAXSEG` {packetsize.SMALL_SEGMENT_BYTES}" in text
    assert f"`no answer within {dialling.CONNECT_TIMEOUT_S:.0f} s`" in text
    assert f"`TLS was not set up within {dialling.HANDSHAKE_TIMEOUT_S:.0f} s`" in text
    assert f"sends nothing for {edgetrust._TIMEOUT_S:.0f} s" in text
    assert f"takes longer than {edgetrust._ANSWER_S:.0f} s to answer" in text


def test_every_field_of_the_access_log_is_in_the_manual() -> None:
    section = MANUAL.partition("\n## Access log\n")[2].partition("\n## ")[0]
    fields = lines._Line.__struct_fields__

    missing = [field for field in fields if not re.search(rf'[`"]{field}[`"]', section)]

    assert len(fields) > 20
    assert missing == []


def test_every_error_response_has_a_row_with_its_status_code() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in SOURCES)
    given = set(re.findall(r'(?:Answer|error_answer)\(\s*(\d{3}), "(\w+)"', text))
    given |= {(code, reason) for code, reason in re.findall(r'FixedAnswer\((\d{3}), .*"(\w+)"\)', text)}
    given |= {(str(wording.status_code), reason.value) for reason, wording in answers._FAILURES.items()}
    given |= {("504", reason) for reason in re.findall(r'_time_out\(\s*"(\w+)"', text)}

    missing = [
        f"{status} {reason}"
        for status, reason in sorted(given)
        if not re.search(rf"^\| {status} \|[^|]*`{reason}`", MANUAL, re.M)
    ]

    assert len(given) > 20, "the expressions above do not fit the sources any more"
    assert missing == []


def test_every_label_value_of_failures_and_refusals_is_in_the_manual() -> None:
    reasons = [reason.value for reason in Reason]

    assert [each for each in (*reasons, "timeout", mirrors.BEHIND) if f"`{each}`" not in MANUAL] == []
    assert [cause for cause in REFUSAL_CAUSES if f"\n| `{cause}` | " not in MANUAL] == []
    assert [cause.value for cause in FailureCause if f"`{cause.value}`" not in METRICS] == []


def test_every_error_of_the_config_api_has_a_row_with_its_category() -> None:
    source = (REPOSITORY / "proxy" / "supervisor" / "api.py").read_text(encoding="utf-8")
    named = set(re.findall(r'Refused\((\d{3}), [^\n]*error="([a-z ]+)"', source))
    plain = {(code, category(int(code))) for code in re.findall(r"Refused\((\d{3}), (?![^\n]*error=)", source)}
    given = named | plain | {("405", category(405))}

    missing = [each for each in sorted(given) if not re.search(rf"^\| {each[0]} \| .*`{each[1]}`", MANUAL, re.M)]

    assert {code for code, _ in given} == {"400", "401", "403", "404", "405", "409", "412", "413", "415", "503"}
    assert missing == []


def test_every_message_of_readiness_has_a_row() -> None:
    sources = [REPOSITORY / "proxy" / "supervisor" / name for name in ("fleet.py", "main.py")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    problem = text.partition("def problem")[2].partition("# -- numbers")[0]
    messages = re.findall(r'return "([a-z ]+)"', problem + text.partition("def missing")[2].partition("\n    if ")[0])

    assert len(messages) == 4
    assert [message for message in messages if f"| {message} |" not in MANUAL] == []


def test_the_limits_of_regular_expressions_in_the_manual_are_those_of_the_code() -> None:
    states = sys.modules[automaton.__module__].MAX_STATES  # the package's function hides the module of that name
    bounds = (syntax.MAX_LENGTH, syntax.MAX_DEPTH, syntax.MAX_POSITIONS, states)

    found = re.search(
        r"Limits of an expression: ([\d,]+) char\D+([\d,]+) nested\D+([\d,]+) characters[^,]+?\D+([\d,]+) states",
        REFERENCE,
    )

    assert found is not None
    assert tuple(int(number.replace(",", "")) for number in found.groups()) == bounds


def test_defaults_of_options_in_the_manual_are_those_of_the_code() -> None:
    defaults = {field.name: field.default for field in dataclasses.fields(Options)}

    assert f"`{defaults['config_addr']}` by default" in MANUAL
    assert f"`PROXY_GRACE_PERIOD` ({defaults['grace_period_s']:.0f} s)" in MANUAL
    assert f"`PROXY_SHUTDOWN_DELAY` ({defaults['shutdown_delay_s']:.0f} s)" in MANUAL
