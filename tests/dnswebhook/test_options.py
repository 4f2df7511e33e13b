"""What can be set: defaults, contradictions, secrets from files, and where things are kept."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from daemonkit.options import BadOptions, load, parse
from dnswebhook.options import COMMANDS, PREFIX, Options
from dnswebhook.stores.unifi.settings import ApiChoice, FlavourChoice
from tests.support.process import REPOSITORY

UNIFI = {"UNIFI_HOST": "https://192.0.2.1", "UNIFI_API_KEY": "key"}
FINGERPRINT = "ab" * 32


def options(*argv: str, **environ: str) -> Options:
    return parse(Options, prefix=PREFIX, argv=argv, environ=environ, commands=COMMANDS)[1]


def problems(*argv: str, **environ: str) -> str:
    with pytest.raises(BadOptions) as bad:
        options(*argv, **environ)
    return "\n".join(problem.text for problem in bad.value.problems)


def test_the_defaults_are_the_documented_ones() -> None:
    default = options()

    assert ("127.0.0.1:8888", "0.0.0.0:8080") == (str(default.api_addr), str(default.health_addr))
    assert 5_242_880 == default.max_body_bytes
    assert 12.0 == default.call_deadline_s
    assert ("auto", False, (), 1.0, 5) == (
        default.store,
        default.dry_run,
        default.protect,
        default.max_delete_share,
        default.write_parallelism,
    )
    assert default.filter().accepts_everything
    assert not default.protected().matches("anything")
    assert not default.uses_unifi
    assert "run" == parse(Options, prefix=PREFIX, argv=(), environ={}, commands=COMMANDS)[0]


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, False),
        ({"DNSWEBHOOK_STORE": "embedded"}, False),
        (UNIFI, True),
        ({**UNIFI, "DNSWEBHOOK_STORE": "unifi"}, True),
        ({**UNIFI, "DNSWEBHOOK_STORE": "embedded"}, False),
        ({"UNIFI_HOST": "", "UNIFI_USER": ""}, False),
    ],
)
def test_the_controllers_address_selects_the_store_unless_it_is_named(environ: dict[str, str], expected: bool) -> None:
    assert expected is options(**environ).uses_unifi


def test_a_flag_wins_over_its_variable() -> None:
    assert 0.25 == options("--max-delete-share", "0.25", DNSWEBHOOK_MAX_DELETE_SHARE="0.5").max_delete_share


def test_the_domain_filter_is_read_from_the_usual_variable_names() -> None:
    lists = options(DOMAIN_FILTER="example.com, .example.org", EXCLUDE_DOMAIN_FILTER="private.example.com").filter()
    expressions = options(REGEXP_DOMAIN_FILTER=r"\.lan$", REGEXP_DOMAIN_FILTER_EXCLUSION="^tmp").filter()

    assert (("example.com", ".example.org"), ("private.example.com",)) == (lists.include, lists.exclude)
    assert (r"\.lan$", "^tmp") == (expressions.regex_include, expressions.regex_exclude)


def test_protected_names_are_a_list_of_patterns() -> None:
    protected = options(DNSWEBHOOK_PROTECT="nas.example.com,*.lan").protected()

    assert protected.matches("printer.lan")
    assert not protected.matches("app.example.com")


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        (
            {"DNSWEBHOOK_STORE": "unifi"},
            "--store (DNSWEBHOOK_STORE) is unifi, but --unifi-host (UNIFI_HOST) is not set",
        ),
        ({"DNSWEBHOOK_STORE": "sqlite"}, "DNSWEBHOOK_STORE"),
        ({"DOMAIN_FILTER": "a.example", "REGEXP_DOMAIN_FILTER": "a"}, "external-dns accepts only one kind"),
        ({"REGEXP_DOMAIN_FILTER": "("}, "REGEXP_DOMAIN_FILTER: regular expression '(' is not valid"),
        ({"REGEXP_DOMAIN_FILTER_EXCLUSION": "(?=a)"}, "REGEXP_DOMAIN_FILTER_EXCLUSION: regular expression"),
        (
            {"DNSWEBHOOK_PROTECT": "nas.example.com;*.lan"},
            "DNSWEBHOOK_PROTECT: 'nas.example.com;*.lan' matches no name",
        ),
        ({"UNIFI_HOST": "https://192.0.2.1"}, "want UNIFI_API_KEY (or UNIFI_USER and UNIFI_PASS)"),
        ({**UNIFI, "UNIFI_USER": "u", "UNIFI_PASS": "p"}, "both UNIFI_API_KEY and UNIFI_USER/UNIFI_PASS"),
        ({"UNIFI_HOST": "https://192.0.2.1", "UNIFI_USER": "u"}, "only one of UNIFI_USER and UNIFI_PASS"),
        ({**UNIFI, "UNIFI_TLS_FINGERPRINT": FINGERPRINT, "UNIFI_CA_CERT": "/ca.pem"}, "want only one of them"),
        ({**UNIFI, "UNIFI_TLS_FINGERPRINT": FINGERPRINT, "UNIFI_SKIP_TLS_VERIFY": "true"}, "UNIFI_SKIP_TLS_VERIFY"),
        ({**UNIFI, "UNIFI_TLS_FINGERPRINT": "abc"}, "want 64 hexadecimal digits"),
        ({**UNIFI, "UNIFI_API": "integration", "UNIFI_FLAVOUR": "classic"}, "UNIFI_FLAVOUR=classic"),
        ({**UNIFI, "UNIFI_SITE": "../x"}, "UNIFI_SITE"),
        ({"UNIFI_HOST": "ftp://x", "UNIFI_API_KEY": "key"}, "'ftp://x' has scheme 'ftp', want https or http"),
        ({"UNIFI_API_KEY": ""}, "UNIFI_API_KEY is set but empty"),
        ({"UNIFI_API_KEY": "k", "UNIFI_API_KEY_FILE": "/k"}, "UNIFI_API_KEY and UNIFI_API_KEY_FILE are both set"),
        ({"DNSWEBHOOK_MAX_DELETE_SHARE": "1.5"}, "DNSWEBHOOK_MAX_DELETE_SHARE"),
        ({"DNSWEBHOOK_CALL_DEADLINE": "soon"}, "DNSWEBHOOK_CALL_DEADLINE"),
        ({"DNSWEBHOOK_DRY_RUN": "perhaps"}, "DNSWEBHOOK_DRY_RUN"),
        ({"DNSWEBHOOK_API_ADDR": "nowhere"}, "DNSWEBHOOK_API_ADDR"),
    ],
)
def test_invalid_and_contradictory_options_are_refused_by_name(environ: dict[str, str], expected: str) -> None:
    assert expected in problems(**environ)


def test_the_controllers_settings_are_passed_to_its_store(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("  s3cret-key \n")

    given = options(
        "--state-dir",
        str(tmp_path),
        UNIFI_HOST="https://192.0.2.1",
        UNIFI_API_KEY_FILE=str(key),
        UNIFI_API="v2",
        UNIFI_FLAVOUR="os",
        UNIFI_SITE="lab",
        UNIFI_TLS_FINGERPRINT=FINGERPRINT.upper(),
        UNIFI_REQUEST_TIMEOUT="1500ms",
        DNSWEBHOOK_WRITE_PARALLELISM="8",
    )
    settings = given.unifi_settings()

    assert "s3cret-key" == settings.api_key.reveal()
    assert (ApiChoice.V2, FlavourChoice.OS, "lab") == (settings.api, settings.flavour, settings.site)
    assert (FINGERPRINT, 1.5, 8, tmp_path) == (
        settings.tls_fingerprint,
        settings.request_timeout_s,
        settings.parallel_calls,
        settings.state_dir,
    )


def test_no_secret_shows_in_options_or_settings() -> None:
    with_key = options(UNIFI_HOST="https://192.0.2.1", UNIFI_API_KEY="s3cret")
    with_password = options(UNIFI_HOST="https://192.0.2.1", UNIFI_USER="u", UNIFI_PASS="s3cret")

    for given in (with_key, with_password):
        assert "s3cret" not in f"{given!r} {given} {given.unifi_settings()!r}"


def test_a_secret_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "missing"

    assert str(missing) in problems(UNIFI_HOST="https://192.0.2.1", UNIFI_API_KEY_FILE=str(missing))


@pytest.mark.parametrize(
    ("flag", "environ", "expected"),
    [
        ("/given", {"STATE_DIRECTORY": "/systemd"}, "/given"),
        ("", {"STATE_DIRECTORY": "/systemd:/other", "XDG_STATE_HOME": "/xdg"}, "/systemd"),
        ("", {"XDG_STATE_HOME": "/xdg"}, "/xdg/dnswebhook"),
        ("", {}, "/home/somebody/.local/state/dnswebhook"),
        ("", {"STATE_DIRECTORY": "", "XDG_STATE_HOME": ""}, "/home/somebody/.local/state/dnswebhook"),
    ],
)
def test_the_state_directory_is_the_one_given_or_the_one_of_the_environment(
    flag: str, environ: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("STATE_DIRECTORY", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/somebody")
    for name, value in environ.items():
        monkeypatch.setenv(name, value)

    assert Path(expected) == options(*(["--state-dir", flag] if flag else [])).state_path()


@pytest.mark.parametrize("environ", [{}, {"UNIFI_HOST": "https://192.0.2.1", "UNIFI_API_KEY": "k"}])
def test_the_error_without_a_home_directory_names_the_option_of_the_state_directory(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("STATE_DIRECTORY", "XDG_STATE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 0x7FFFFFF0)  # a user id that does not exist here

    with pytest.raises(ValueError, match=r"no home directory: set --state-dir \(DNSWEBHOOK_STATE_DIR\)"):
        options(**environ).state_path()


def started(*arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "dnswebhook", *arguments],
        cwd=REPOSITORY,
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "environ", "expected"),
    [
        (["--store", "unifi"], {}, "--unifi-host (UNIFI_HOST) is not set"),
        (["--nonsense"], {}, "--nonsense"),
        (["dance"], {}, "dance"),
        (["check"], {"DOMAIN_FILTER": "a.example", "REGEXP_DOMAIN_FILTER": "a"}, "only one kind"),
        (["--unifi-ca-cert", "/nonexistent/ca.pem"], UNIFI, "/nonexistent/ca.pem"),
    ],
)
def test_bad_options_end_the_real_process_with_exit_code_2_and_one_clear_line(
    arguments: list[str], environ: dict[str, Any], expected: str
) -> None:
    finished = started(*arguments, **environ)

    assert 2 == finished.returncode
    assert "" == finished.stdout
    assert expected in finished.stderr
    assert "Traceback" not in finished.stderr
    assert finished.stderr.endswith("See `dnswebhook --help`.\n")


def test_help_names_every_option_with_its_variable() -> None:
    finished = started("--help")

    assert 0 == finished.returncode
    for text in ("--max-body", "DNSWEBHOOK_MAX_BODY", "UNIFI_API_KEY", "--unifi-pass-file", "REGEXP_DOMAIN_FILTER"):
        assert text in finished.stdout


def test_each_site_of_each_controller_and_the_embedded_store_have_files_of_their_own() -> None:
    here, there = UNIFI, {**UNIFI, "UNIFI_HOST": "https://192.0.2.2"}
    embedded = {**UNIFI, "DNSWEBHOOK_STORE": "embedded"}
    stores = [options(**environ) for environ in (here, {**here, "UNIFI_SITE": "garden"}, there, embedded)]

    assert len({store.store_identity for store in stores}) == 4
    assert options().store_identity == options(**embedded).store_identity


def test_the_place_of_the_records_mentions_a_missing_controller_only_where_none_is_named() -> None:
    assert options().store_place().endswith("(UNIFI_HOST is not set)")
    assert "UNIFI_HOST" not in options(**UNIFI, DNSWEBHOOK_STORE="embedded").store_place()


@pytest.mark.usefixtures("logging_as_before")
@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("DOMAIN_FILTERS", "DOMAIN_FILTER"),
        ("EXCLUDE_DOMAINS_FILTER", "EXCLUDE_DOMAIN_FILTER"),
        ("REGEX_DOMAIN_FILTER", "REGEXP_DOMAIN_FILTER"),
        ("REGEXP_DOMAIN_EXCLUSION", "REGEXP_DOMAIN_FILTER_EXCLUSION"),
    ],
)
def test_a_misspelt_domain_filter_is_reported(variable: str, meant: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Without it, records of all domains would be written, and nothing said."""
    load(Options, prog="dnswebhook", prefix=PREFIX, argv=[], environ={variable: "example.com"})

    warning = json.loads(capfd.readouterr().err)
    assert (warning["level"], warning["variable"], warning["did_you_mean"]) == ("WARNING", variable, meant)
