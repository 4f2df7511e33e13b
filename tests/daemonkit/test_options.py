"""The option rules: where a value comes from, which wins, what is refused and with which message."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from daemonkit.addresses import ListenAddress
from daemonkit.options import BadOptions, CommonOptions, ProblemKind, load, option, parse, reference_page
from daemonkit.secret import Secret
from daemonkit.values import comma_list, duration, parse_bool, parse_size

pytestmark = pytest.mark.usefixtures("logging_as_before")

PREFIX = "THING_"
COMMANDS = {"run": "serve", "records": "print what is held"}


@dataclass(frozen=True, kw_only=True)
class Options(CommonOptions):
    api_addr: ListenAddress = option(parse=ListenAddress.parse, default="127.0.0.1:8888", help="where the API listens")
    dry_run: bool = option(parse=parse_bool, default="false", help="write nothing")
    domains: tuple[str, ...] = option(parse=comma_list(), default="", env="DOMAIN_FILTER", help="names that are ours")
    host: str | None = option(env="UNIFI_HOST", group="controller", help="base URL, 100% needed")
    api_key: Secret | None = option(secret=True, env="UNIFI_API_KEY", group="controller", help="the API key")
    wait_s: float = option(parse=duration(0, 60), default="12s", unit="duration", help="how long a call may take")
    body_bytes: int = option(parse=parse_size, default="5MiB", unit="bytes", help="largest body")
    json: bool = option(parse=parse_bool, default="no", commands=["records"], help="print JSON")

    def __post_init__(self) -> None:
        if self.dry_run and self.host == "contradiction":
            raise ValueError("--dry-run and --host contradict each other")


def read(*argv: str, **environ: str) -> Options:
    return parse(Options, prefix=PREFIX, argv=argv, environ=environ, commands=COMMANDS)[1]


def problems(*argv: str, **environ: str) -> list[str]:
    with pytest.raises(BadOptions) as caught:
        read(*argv, **environ)
    return [problem.text for problem in caught.value.problems]


def test_without_flags_and_variables_the_defaults_hold() -> None:
    options = read()

    assert options == Options()
    assert options.api_addr == ListenAddress("127.0.0.1", 8888)
    assert (options.dry_run, options.domains, options.host, options.api_key) == (False, (), None, None)
    assert (options.wait_s, options.body_bytes, options.grace_period_s) == (12.0, 5242880, 30.0)


def test_a_flag_wins_over_the_variable_and_the_variable_over_the_default() -> None:
    assert read(THING_API_ADDR=":1").api_addr.port == 1
    assert read("--api-addr", ":2", THING_API_ADDR=":1").api_addr.port == 2
    assert read("--api-addr=:3", "--api-addr=:4").api_addr.port == 4


def test_a_unit_suffix_of_a_field_name_is_not_part_of_flag_and_variable() -> None:
    assert read("--wait", "1s").wait_s == 1.0
    assert read(THING_BODY="1KiB").body_bytes == 1024
    assert read(THING_GRACE_PERIOD="5s").grace_period_s == 5.0


def test_a_variable_named_explicitly_has_no_prefix_and_the_flag_comes_from_the_field() -> None:
    assert read(UNIFI_HOST="h").host == "h"
    assert read("--host", "g").host == "g"
    assert read(LOG_LEVEL="DEBUG").log_level == "debug"


@pytest.mark.parametrize("empty", ["", "  "])
def test_an_empty_variable_counts_as_unset(empty: str) -> None:
    assert read(THING_API_ADDR=empty, UNIFI_HOST=empty, THING_DRY_RUN=empty, LOG_LEVEL=empty) == Options()


def test_an_empty_flag_is_refused() -> None:
    assert "--host (UNIFI_HOST): the flag was given an empty value" in problems("--host=")[0]


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--dry-run"], True),
        (["--no-dry-run"], False),
        (["--dry-run=true"], True),
        (["--dry-run=No"], False),
        (["--dry-run", "--no-dry-run"], False),
        (["--dry-run", "run"], True),
    ],
)
def test_boolean_flags_stand_alone_negated_or_with_a_value(argv: list[str], expected: bool) -> None:
    assert read(*argv, THING_DRY_RUN="1" if not expected else "0").dry_run is expected


def test_a_list_is_separated_by_commas_and_its_flag_may_repeat() -> None:
    assert read(DOMAIN_FILTER="a.example, b.example").domains == ("a.example", "b.example")
    assert read("--domains", "a,b", "--domains", "c", DOMAIN_FILTER="x").domains == ("a", "b", "c")


def test_an_empty_list_flag_empties_the_list() -> None:
    assert read("--domains=", DOMAIN_FILTER="x").domains == ()


def test_a_secret_comes_from_its_variable_without_surrounding_white_space() -> None:
    assert read(UNIFI_API_KEY=" key\n").api_key == Secret("key")


def test_a_secret_comes_from_a_file_named_by_variable_or_flag(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("\n  from file \r\n")

    assert read(UNIFI_API_KEY_FILE=str(file)).api_key == Secret("from file")
    assert read("--api-key-file", str(file)).api_key == Secret("from file")
    assert read("--api-key-file", str(file), UNIFI_API_KEY="other").api_key == Secret("from file")


@pytest.mark.parametrize("blank", ["", " \t\n"])
def test_a_secret_that_is_set_but_empty_is_refused(blank: str) -> None:
    assert problems(UNIFI_API_KEY=blank) == ["UNIFI_API_KEY is set but empty"]
    assert problems(UNIFI_API_KEY_FILE=blank) == ["UNIFI_API_KEY_FILE is set but empty"]


@pytest.mark.parametrize("variable", ["UNIFI_API_KEY", "UNIFI_API_KEY_FILE"])
def test_only_an_empty_secret_is_a_problem_of_a_kind_of_its_own(variable: str) -> None:
    with pytest.raises(BadOptions) as caught:
        read("--wait", "empty", **{variable: ""})

    assert {problem.field: problem.kind for problem in caught.value.problems} == {
        "wait_s": ProblemKind.WRONG,
        "api_key": ProblemKind.EMPTY,
    }


def test_an_empty_secret_file_is_an_empty_secret(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text(" \n")

    with pytest.raises(BadOptions) as caught:
        read("--api-key-file", str(tmp_path / "empty"))

    assert [problem.kind for problem in caught.value.problems] == [ProblemKind.EMPTY]


def test_a_secret_given_by_variable_and_by_file_is_refused(tmp_path: Path) -> None:
    assert problems(UNIFI_API_KEY="a", UNIFI_API_KEY_FILE=str(tmp_path)) == [
        "UNIFI_API_KEY and UNIFI_API_KEY_FILE are both set, want only one of them"
    ]


def test_a_secret_file_that_cannot_be_used_is_named_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00secret")
    (tmp_path / "large").write_bytes(b"x" * 70_000)

    names = "UNIFI_API_KEY_FILE (--api-key-file)"
    absent = tmp_path / "absent"
    assert problems(UNIFI_API_KEY_FILE=str(absent)) == [
        f"{names}: cannot read the file '{absent}': No such file or directory"
    ]
    [problem] = problems(UNIFI_API_KEY_FILE="a\0b")
    # Python has other words for it from one version to the next.
    assert re.fullmatch(re.escape(f"{names}: cannot read the file 'a\\x00b': ") + ".*embedded null .*", problem)
    assert "Is a directory" in problems(UNIFI_API_KEY_FILE=str(tmp_path))[0]
    assert "is empty" in problems(UNIFI_API_KEY_FILE=str(tmp_path / "empty"))[0]
    assert "not UTF-8 text" in problems(UNIFI_API_KEY_FILE=str(tmp_path / "binary"))[0]
    assert "larger than 65536 bytes" in problems("--api-key-file", str(tmp_path / "large"))[0]


@pytest.mark.parametrize("secret", ["hunter2", "x" * 5000])
def test_a_secret_in_place_of_its_file_is_not_repeated(secret: str) -> None:
    (problem,) = problems(UNIFI_API_KEY_FILE=secret)

    assert secret not in problem
    assert "cannot read the file (a relative path, not repeated: it may be the secret itself): " in problem


@pytest.mark.parametrize("argv", [["--api-key", "hunter2"], ["--api-key=hunter2"]])
def test_a_secret_on_the_command_line_is_refused_and_not_repeated(argv: list[str]) -> None:
    found = problems(*argv)

    assert "use --api-key-file or UNIFI_API_KEY" in found[0]
    assert "hunter2" not in str(found)


def test_all_bad_options_are_reported_at_once_each_with_flag_variable_and_origin() -> None:
    found = problems("--wait", "5", "--body", "x", THING_DRY_RUN="maybe", UNIFI_API_KEY="")

    assert len(found) == 4
    assert found[0].startswith("--dry-run (THING_DRY_RUN), taken from the environment variable THING_DRY_RUN: seen")
    assert found[1] == "UNIFI_API_KEY is set but empty"
    assert found[2].startswith("--wait (THING_WAIT), taken from the flag: seen '5' without a unit")
    assert found[3].startswith("--body (THING_BODY), taken from the flag: seen 'x'")


def test_unknown_flags_are_reported_with_the_nearest_known_one() -> None:
    assert problems("--api-adr", ":1", "--frobnicate") == [
        "unknown flag --api-adr, did you mean --api-addr?",
        "unknown flag --frobnicate",
    ]


def test_an_abbreviated_flag_is_unknown() -> None:
    assert problems("--api", ":1")[0].startswith("unknown flag --api")


def test_a_flag_without_its_value_is_refused() -> None:
    assert problems("--host") == ["argument --host: expected one argument"]


def test_options_that_contradict_each_other_are_refused() -> None:
    assert problems("--dry-run", "--host", "contradiction") == ["--dry-run and --host contradict each other"]


@pytest.mark.parametrize(
    ("argv", "command"),
    [
        ([], "run"),
        (["run"], "run"),
        (["records"], "records"),
        (["records", "--json"], "records"),
        (["--json", "records"], "records"),
        (["--host", "h", "records", "--json"], "records"),
    ],
)
def test_the_command_may_stand_anywhere_and_defaults_to_the_first(argv: list[str], command: str) -> None:
    assert parse(Options, prefix=PREFIX, argv=argv, environ={}, commands=COMMANDS)[0] == command


def test_an_unknown_command_is_refused_with_the_known_ones() -> None:
    assert problems("serve") == ["unknown command 'serve', want one of run, records"]
    assert problems("run", "again") == ["unexpected argument 'again'"]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["explian", "--zone", "x"], "unknown command 'explian', want one of run, records, explain"),
        (["--host", "h", "explain"], "the command 'explain' has to stand first, before its flags"),
        (["--host", "h", "explian"], "unknown command 'explian', want one of run, records, explain"),
    ],
)
def test_a_command_with_options_of_its_own_has_to_stand_first(
    capsys: pytest.CaptureFixture[str], argv: list[str], said: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        load(
            Options,
            prog="thing",
            prefix=PREFIX,
            argv=argv,
            environ={},
            commands=COMMANDS,
            questions={"explain": "say why"},
        )

    assert caught.value.code == 2
    assert capsys.readouterr().err == f"thing: {said}\nSee `thing --help`.\n"


def test_a_flag_of_another_command_is_refused() -> None:
    assert problems("--json") == ["--json makes no sense for the command 'run', only for records"]


def test_bad_options_end_the_process_with_exit_code_2_and_the_problems_on_stderr(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as caught:
        load(Options, prog="thing", prefix=PREFIX, argv=["--wait", "5"], environ={"LOG_LEVEL": "loud"})

    captured = capsys.readouterr()
    assert caught.value.code == 2
    assert captured.out == ""
    assert captured.err.startswith("thing: --log-level (LOG_LEVEL), taken from the environment variable LOG_LEVEL: ")
    assert "thing: --wait (THING_WAIT), taken from the flag: " in captured.err
    assert captured.err.endswith("See `thing --help`.\n")


def test_load_returns_the_command_and_the_options() -> None:
    assert load(Options, prog="thing", prefix=PREFIX, argv=[], environ={}) == ("", Options())
    assert load(Options, prog="thing", prefix=PREFIX, argv=[], environ={}, commands=COMMANDS) == ("run", Options())


def test_unknown_variables_with_our_prefix_are_warned_of_with_the_nearest_known_one(
    capfd: pytest.CaptureFixture[str],
) -> None:
    environ = {"THING_API_ADR": ":1", "THING_ZZZ": "1", "OTHER_API_ADDR": "1", "THING_WAIT": "1s"}

    load(Options, prog="thing", prefix=PREFIX, argv=[], environ=environ)

    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [(line["level"], line["variable"], line.get("did_you_mean")) for line in lines] == [
        ("WARNING", "THING_API_ADR", "THING_API_ADDR"),
        ("WARNING", "THING_ZZZ", None),
    ]
    assert "did_you_mean" not in lines[1]


def test_misspelt_variables_with_a_shared_prefix_are_warned_of(capfd: pytest.CaptureFixture[str]) -> None:
    class Sharing(Options):
        SHARED_PREFIXES = ("UNIFI_",)

    load(Sharing, prog="thing", prefix=PREFIX, argv=[], environ={"UNIFI_HOTS": "x", "UNIFI_PORT_443_TCP": "tcp://x"})

    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [(line["variable"], line["did_you_mean"]) for line in lines] == [("UNIFI_HOTS", "UNIFI_HOST")]


def test_misspelt_variables_are_reported_together_with_bad_options(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is logged then, and the report would name only the options that they failed to set."""
    environ = {"THING_API_ADR": ":1", "THING_ZZZ": "1"}

    with pytest.raises(SystemExit):
        load(Options, prog="thing", prefix=PREFIX, argv=["--dry-run", "--host", "contradiction"], environ=environ)

    assert capsys.readouterr().err.splitlines() == [
        "thing: --dry-run and --host contradict each other",
        "thing: unknown environment variable THING_API_ADR, did you mean THING_API_ADDR?",
        "See `thing --help`.",
    ]


def test_a_boolean_after_a_flag_without_an_equals_sign_is_explained() -> None:
    assert problems("records", "--dry-run", "yes") == ["unexpected argument 'yes', did you mean --dry-run=yes?"]
    assert problems("--dry-run", "no") == ["unknown command 'no', did you mean --dry-run=no?"]
    assert problems("records", "yes") == ["unexpected argument 'yes'"]
    assert problems("records", "--dry-run", "other") == ["unexpected argument 'other'"]


def test_the_service_variables_of_kubernetes_cause_no_warning(capfd: pytest.CaptureFixture[str]) -> None:
    names = ["SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT", "PORT_8080_TCP", "PORT_8080_TCP_ADDR"]
    names += [f"WEB_{name}" for name in names]

    load(Options, prog="thing", prefix=PREFIX, argv=[], environ={f"THING_{name}": "tcp://10.0.0.1" for name in names})

    assert capfd.readouterr().err == ""


def test_help_names_commands_with_options_of_their_own_and_where_these_are_listed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        load(
            Options,
            prog="thing",
            prefix=PREFIX,
            argv=["--help"],
            environ={"COLUMNS": "120"},
            commands=COMMANDS,
            questions={"explain": "say why"},
        )

    text = capsys.readouterr().out
    assert text.startswith("usage: thing [run|records|explain] [flags]\n")
    assert "\n\ncommands:\n" in text
    assert "\n  explain  say why\n" in text
    rule = "Below are the flags of `run`, `records`. Other commands list theirs, such as `thing explain --help`."
    assert rule in " ".join(text.split())


def test_help_names_variable_and_default_of_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        load(Options, prog="thing", prefix=PREFIX, argv=["--help"], environ={"COLUMNS": "120"}, commands=COMMANDS)

    text = " ".join(capsys.readouterr().out.split())
    assert caught.value.code == 0
    assert "where the API listens [THING_API_ADDR; default: 127.0.0.1:8888]" in text
    assert "base URL, 100% needed [UNIFI_HOST; default: none]" in text
    assert "[UNIFI_API_KEY or UNIFI_API_KEY_FILE; default: none]" in text
    assert "controller:" in text
    assert "records print what is held" in text
    assert "--log-format json|text" in text
    assert "--wait DURATION" in text
    assert "--body SIZE" in text


def test_help_breaks_no_line_within_a_flag(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "37")

    with pytest.raises(SystemExit):
        load(Options, prog="thing", prefix=PREFIX, argv=["--help"], environ={}, description="--dry-run " * 20)

    text = capsys.readouterr().out
    assert text.count("--dry-run ") + text.count("--dry-run\n") > 20


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        load(Options, prog="thing", prefix=PREFIX, argv=["--version"], environ={})

    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("thing ")


def test_the_reference_page_lists_every_option_in_its_group() -> None:
    page = reference_page(Options, prog="thing", prefix=PREFIX, description="Does things.")

    assert "## Controller" in page
    assert "| `--wait` | `THING_WAIT` | `12s` | duration | how long a call may take |" in page
    assert "| `--api-key-file` | `UNIFI_API_KEY` or `UNIFI_API_KEY_FILE` | none |  | the API key" in page
    assert "(one of `json`, `text`)" in page
    assert "true|false" not in page


def test_a_dataclass_field_that_is_not_an_option_is_a_type_error() -> None:
    @dataclass(frozen=True)
    class Broken:
        plain: int = 3

    with pytest.raises(TypeError, match="field plain of Broken is not an option"):
        parse(Broken, prefix=PREFIX, argv=[], environ={})
