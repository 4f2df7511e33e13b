"""What the controller's options refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemonkit.options import BadOptions, parse
from tunnelgw.options import PREFIX, Options


@pytest.mark.parametrize("token", ["first\nsecond", "caf\u00e9"])
def test_a_token_that_no_header_can_carry_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(BadOptions, match=r"PROXY_AUTH_TOKEN .* is not one line of printable ASCII") as bad:
        parse(Options, prefix=PREFIX, argv=[], environ={"PROXY_AUTH_TOKEN": token})

    assert token not in str(bad.value)


def test_secret_namespaces_is_a_comma_separated_list_of_names() -> None:
    _, found = parse(Options, prefix=PREFIX, argv=[], environ={"TUNNELGW_SECRET_NAMESPACES": "infra, shop-1"})
    _, all_ = parse(Options, prefix=PREFIX, argv=[], environ={})

    assert (found.secret_namespaces, all_.secret_namespaces) == (("infra", "shop-1"), ())


@pytest.mark.parametrize("name", ["Infra", "a_b", "-a", "a/b", "a" * 64, "*"])
def test_an_invalid_namespace_name_in_secret_namespaces_is_refused(name: str) -> None:
    with pytest.raises(BadOptions, match=r"--secret-namespaces .*want a valid namespace name"):
        parse(Options, prefix=PREFIX, argv=["--secret-namespaces", f"infra,{name}"], environ={})


@pytest.mark.parametrize("name", ["Infra", "a/b", "a" * 64])
def test_an_invalid_name_of_the_controllers_own_namespace_is_refused_at_the_start(name: str) -> None:
    with pytest.raises(BadOptions, match=r"--namespace \(TUNNELGW_NAMESPACE\).*want a valid namespace name"):
        parse(Options, prefix=PREFIX, argv=[], environ={"TUNNELGW_NAMESPACE": name})


@pytest.mark.parametrize(
    "name", ["a" * 64, f"a.{'b' * 64}", "a..b", ".a", "-a", "a-", "*.a", "a b", "a:1", "a/b", "a.", "."]
)
def test_a_server_name_that_tls_cannot_ask_for_is_refused_at_the_start(name: str) -> None:
    with pytest.raises(BadOptions, match=r"--proxy-tls-server-name .*want a host name or an IP address"):
        parse(Options, prefix=PREFIX, argv=[f"--proxy-tls-server-name={name}"], environ={})


@pytest.mark.parametrize(
    "name", ["a" * 63, "proxy_a.example", "Proxy.example", "192.0.2.1", "fd00::1", "xn--a", "ä.test"]
)
def test_a_server_name_is_a_host_name_or_an_address(name: str) -> None:
    argv = ["--proxy-service", "infra/proxy", "--proxy-tls-server-name", name]
    _, found = parse(Options, prefix=PREFIX, argv=argv, environ={})

    assert found.proxy_tls_server_name == name


def test_the_source_is_a_folder_if_manifests_are_given_and_nothing_else_is_said() -> None:
    argv = ["--manifests", "manifests"]
    _, folder = parse(Options, prefix=PREFIX, argv=argv, environ={"KUBECONFIG": "kubeconfig"})
    _, server = parse(Options, prefix=PREFIX, argv=[], environ={})

    assert (folder.reads_folder, server.reads_folder) == (True, False)
    with pytest.raises(BadOptions, match=r"--manifests .* goes with --source directory"):
        parse(Options, prefix=PREFIX, argv=[*argv, "--source", "kubernetes"], environ={})


def test_the_kubeconfig_flag_excludes_a_folder_and_takes_precedence_over_its_variable() -> None:
    argv, environ = ["--kubeconfig", "kubeconfig"], {"TUNNELGW_MANIFESTS": "manifests"}
    _, server = parse(Options, prefix=PREFIX, argv=argv, environ=environ)

    assert not server.reads_folder
    with pytest.raises(BadOptions, match=r"^--kubeconfig and --manifests exclude each other$"):
        parse(Options, prefix=PREFIX, argv=[*argv, "--manifests", "manifests"], environ={})
    with pytest.raises(BadOptions, match=r"with the flag --kubeconfig, .* want --source kubernetes$"):
        parse(Options, prefix=PREFIX, argv=argv, environ={**environ, "TUNNELGW_SOURCE": "directory"})
    with pytest.raises(BadOptions, match=r"wants --manifests \(TUNNELGW_MANIFESTS\)$"):
        parse(Options, prefix=PREFIX, argv=[], environ={"TUNNELGW_SOURCE": "directory"})


def test_secret_namespaces_is_refused_with_the_directory_source() -> None:
    argv = ["--source", "directory", "--manifests", "manifests", "--secret-namespaces", "infra"]
    with pytest.raises(BadOptions, match=r"--secret-namespaces .* --source kubernetes"):
        parse(Options, prefix=PREFIX, argv=argv, environ={})


@pytest.mark.parametrize(
    "url",
    [
        "proxy:8082",
        "http://",
        "http://proxy:99999",
        "http://proxy:0",
        "http://proxy proxy:8082",
        "http://proxy:8082/config",
        "http://proxy:8082?a=b",
        "http://proxy:8082#a",
        "http://pr\u00f6xy:8082",
        "http://[::1",
        "unix:/",
        "unix:proxy",
    ],
)
def test_an_invalid_proxy_endpoint_is_refused_at_the_start(url: str) -> None:
    with pytest.raises(BadOptions, match=r"--proxy-endpoints .*want "):
        parse(Options, prefix=PREFIX, argv=["--proxy-endpoints", f"http://10.0.0.7:8082,{url}"], environ={})


def test_credentials_in_a_proxy_endpoint_are_refused_and_not_shown() -> None:
    """Endpoints appear in the log, in metrics and in statuses."""
    with pytest.raises(BadOptions, match=r"--proxy-endpoints .*credentials") as bad:
        parse(Options, prefix=PREFIX, argv=[], environ={"TUNNELGW_PROXY_ENDPOINTS": "http://a:hunter2@proxy:8082"})

    assert "hunter2" not in str(bad.value)


def test_valid_proxy_endpoints_are_accepted_without_a_trailing_slash() -> None:
    given = ["http://10.0.0.7:8082/", "https://[2001:db8::7]:8082", "http://proxy", "unix:/run/proxy.sock"]
    _, options = parse(Options, prefix=PREFIX, argv=["--proxy-endpoints", ",".join(given)], environ={})

    assert options.proxy_endpoints == ("http://10.0.0.7:8082", *given[1:])


@pytest.mark.parametrize("again", ["", "/", "/../manifests"])
def test_the_status_directory_must_not_be_the_manifests_directory(tmp_path: Path, again: str) -> None:
    manifests = tmp_path / "manifests"
    manifests.mkdir()
    argv = ["--source", "directory", "--manifests", str(manifests)]

    with pytest.raises(BadOptions, match=r"--status-dir .* is the folder of --manifests"):
        parse(Options, prefix=PREFIX, argv=[*argv, "--status-dir", f"{manifests}{again}"], environ={})

    _, options = parse(Options, prefix=PREFIX, argv=argv, environ={})
    assert options.status_path == manifests / "status"


def test_folders_relative_to_a_working_directory_that_was_removed_are_not_refused_by_the_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()

    _, options = parse(Options, prefix=PREFIX, argv=["--source", "directory", "--manifests", "site"], environ={})

    assert (options.manifests_path, options.status_path) == (Path("site"), Path("site/status"))


def test_a_manifests_directory_that_links_to_itself_is_not_refused_by_the_options(tmp_path: Path) -> None:
    link = tmp_path / "manifests"
    link.symlink_to(link)

    _, options = parse(Options, prefix=PREFIX, argv=["--source", "directory", "--manifests", str(link)], environ={})

    assert options.manifests_path == link
