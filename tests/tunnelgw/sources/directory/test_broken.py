"""Broken manifests are reported with their place, and good ones stay in force."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tunnelgw.sources.directory.site import WEB, Site, route
from tunnelgw.model.gateways import GatewayClass
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.model.snapshot import Entry
from tunnelgw.sources.directory.manifests import MOST_BYTES
from tunnelgw.sources.directory.reading import Manifests

CLASS = """\
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: web}
spec: {controllerName: example.org/controller}
"""


def classes(site: Site) -> list[GatewayClass]:
    items = site.look().snapshot.all(Kind.GATEWAY_CLASS).values()
    return [item for item in items if isinstance(item, GatewayClass)]


def laughs() -> str:
    """A line of ten values, and more lines that each have the one before ten times."""
    lines = [f"x{level}: &x{level} [{', '.join([f'*x{level - 1}'] * 10)}]" for level in range(1, 9)]
    return "\n".join(["x0: &x0 [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]", *lines, ""])


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        ("kind: HTTPRoute\nmetadata: {name: [\n", "web.yaml:3: "),
        (route().replace("  name: web", "  name: web\n  name: web"), "web.yaml:5: key 'name' occurs twice"),
        (route().replace("[a.example.org]", "[a.example.org, A_B]"), "web.yaml:7: spec.hostnames[1] 'A_B' is not"),
        (
            route().replace("hostnames", "hostname"),
            "web.yaml:7: spec.hostname is not a known field, did you mean hostnames?",
        ),
        (
            route() + "  rules: [{sessionPersistence: {sessionName: sid}}]\n",
            "web.yaml:8: spec.rules[0].sessionPersistence.sessionName is not a known field, did you mean",
        ),
        (route().replace("  name: web", "  name: Web"), "web.yaml:4: metadata.name 'Web' is not a name"),
        (route().replace("  name: web", "  generateName: web"), "web.yaml:3: metadata.name is missing"),
        (route("w" * 254), "web.yaml:4: metadata.name has 254 characters, more than 253"),
        (route("web\n  namespace: Shop"), "web.yaml:5: metadata.namespace 'Shop' is not a valid namespace name"),
        (route(f"web\n  namespace: {'n' * 64}"), "web.yaml:5: metadata.namespace has 64 characters, more than 63"),
        (route("web\n  namepsace: shop"), "web.yaml:5: metadata.namepsace is not a known field"),
        (route().replace("kind: HTTPRoute", "kind: 5"), "web.yaml:1: not an object of the API: kind is missing"),
        (
            route().replace("io/v1", "io/v9"),
            "web.yaml:2: there is no kind HTTPRoute in gateway.networking.k8s.io/v9, want",
        ),
        (
            route().replace("k8s.io", "k8.io"),
            "web.yaml:2: there is no kind HTTPRoute in gateway.networking.k8.io/v1, want",
        ),
        (
            route().replace("gateway.networking", "networking"),
            "web.yaml:2: there is no kind HTTPRoute in networking.k8s.io/v1, want gateway.networking.k8s.io/v1",
        ),
        (route().replace("io/v1", "io"), "web.yaml:2: there is no kind HTTPRoute in gateway.networking.k8s.io, want"),
        (
            route().replace("HTTPRoute", "HttpRoute"),
            "web.yaml:2: there is no kind HttpRoute in gateway.networking.k8s.io/v1, did you mean HTTPRoute?",
        ),
        (
            "apiVersion: v1\nkind: secret\nmetadata: {name: web}\n",
            "web.yaml:2: there is no kind secret in v1, did you mean Secret?",
        ),
        (
            f"apiVersion: v1\nkind: SecretList\nitems: [{{metadata: {{name: web}}}}]\n---\n{route()}",
            "web.yaml:2: SecretList is what the API server answers, want kind List of v1 with apiVersion and",
        ),
        (
            route().replace("HTTPRoute", "HTTPRouteList"),
            "web.yaml:2: HTTPRouteList is what the API server answers, want kind List of v1 with",
        ),
        (route("y"), "web.yaml:4: metadata.name true is not a string; write it in quotes"),
        (
            route() + "  rules: [{timeouts: {request: 30}}]\n",
            "web.yaml:8: spec.rules[0].timeouts.request 30 is not a duration such as 1m30s",
        ),
        (
            route() + "  rules: [{matches: [{method: 1}]}]\n",
            "web.yaml:8: spec.rules[0].matches[0].method 1 is not one of",
        ),
        (route() + "  rules: [{name: []}]\n", "web.yaml:8: spec.rules[0].name [] is not a string"),
        (route().replace("  name: web", "\tname: web"), "web.yaml:4: a tab, where YAML wants spaces"),
        (route() + "  rules: @\t\n", "web.yaml:8: found character "),
        (route() + "  für:\t@web\n", "web.yaml:8: found character "),
        ("\ufeff\tkind: Secret\n", "web.yaml:1: a tab, where YAML wants spaces"),
        (route().replace("apiVersion", "#"), "web.yaml:2: not an object of the API: apiVersion is missing"),
        ("\xff\xfe", "web.yaml:1: "),
        (route() + "  rules: \x07\n", "web.yaml:8: not YAML: control characters are not allowed"),
        ("&a [*a]", "web.yaml:1: "),
        (route() + "#" * MOST_BYTES, "web.yaml:1: has more than 4 MiB; split it"),
        (route() + f"  rules: {'[' * 100_000}\n", "web.yaml:8: nests too deeply"),
        (route() + f"  rules:\n  {'- ' * 100_000}\n", "web.yaml:9: nests too deeply"),
        ("apiVersion: v1\nkind: List\nitems: 5\n", "web.yaml:3: items of a List is not a list"),
        (route() + "  rules: !!int 0b_\n", "web.yaml:8: a value cannot be read as int"),
        (route() + f"  rules: !!int {'9' * 5000}\n", "web.yaml:8: a value cannot be read as int"),
        (route() + "  rules: 0b_\n", "web.yaml:8: spec.rules '0b_' is not a list"),
        (route() + "  rules: !!float all\n", "web.yaml:8: a value cannot be read as float"),
        (route() + '  rules: !!int ""\n', "web.yaml:8: a value cannot be read as int"),
        (route() + '  rules: !!float ""\n', "web.yaml:8: a value cannot be read as float"),
        (route() + "  rules: !!map all\n", "web.yaml:8: expected a mapping node, but found scalar"),
        (route() + "  1: x\n", "web.yaml:8: a key is not a string; write it in quotes"),
        (route() + "  [x]: x\n", "web.yaml:8: a key is not a string; write it in quotes"),
        (
            "apiVersion: v1\nkind: List\nitems:\n- kind: Service\n  apiVersion: v1\n  metadata:\n    name: Web\n",
            "web.yaml:7: metadata.name 'Web' is not a name",
        ),
        (route() + "  rules: !!set [all]\n", "web.yaml:8: expected a mapping node, but found sequence"),
        (route() + "  rules: !!bool maybe\n", "web.yaml:8: a value cannot be read as bool"),
        (route() + "  rules: !!timestamp soon\n", "web.yaml:8: a value cannot be read as timestamp"),
        (route() + laughs(), "web.yaml:13: aliases expand this to more than 1,000,000 values"),
    ],
)
def test_a_broken_file_keeps_the_last_good_version_and_reports_file_line_and_reason(
    site: Site, broken: str, problem: str
) -> None:
    site.write("web.yaml", route())
    site.look()

    site.write("web.yaml", broken)

    assert site.hostnames() == ("a.example.org",)
    assert [each for each in site.problems() if each.startswith(problem)], site.problems()
    site.write("web.yaml", route(hostname="mended.example.org"))
    assert site.hostnames() == ("mended.example.org",)
    assert site.problems() == []


@pytest.mark.parametrize(
    ("api_version", "kind"),
    [
        ("apps/v1", "Deployment"),
        ("gateway.networking.k8s.io/v1", "TLSRoute"),
        ("networking.istio.io/v1", "Gateway"),
        ("serving.knative.dev/v1", "Service"),
        ("gateway.envoyproxy.io/v1alpha1", "Backend"),
        ("v1", "ServiceAccount"),
        ("example.org/v1", "secret"),
    ],
)
def test_foreign_kinds_are_no_problem(site: Site, api_version: str, kind: str) -> None:
    site.write("other.yaml", f"apiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: other}}\n")

    site.look()

    assert site.problems() == []


def test_an_invalid_utf_8_byte_is_reported_with_its_line(site: Site) -> None:
    site.write("web.yaml", "").write_bytes(route().encode() + b"  # caf\xe9\n")

    site.look()

    assert site.problems() == ["web.yaml:8: not YAML: incomplete UTF-8 octet sequence; save it as UTF-8"]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32"])
def test_a_file_in_another_encoding_is_reported_with_the_wanted_one(site: Site, encoding: str) -> None:
    site.write("web.yaml", "").write_bytes(route().encode(encoding))

    site.look()

    (problem,) = site.problems()
    assert problem.startswith("web.yaml:1: not YAML: ")
    assert problem.endswith("; save it as UTF-8")


def test_a_file_in_utf_16_with_a_byte_order_mark_is_read(site: Site) -> None:
    """Editors and shells on Windows write these."""
    site.write("web.yaml", "").write_bytes(route().encode("utf-16"))

    assert site.hostnames() == ("a.example.org",)


@pytest.mark.parametrize("value", ["a" * 4000 + " ", "a" * 2000 + "  " + "b" * 1999, "a b" * 1333 + "ä"])
def test_a_long_invalid_header_value_is_refused_at_once(site: Site, value: str) -> None:
    header = f"{{type: RequestHeaderModifier, requestHeaderModifier: {{set: [{{name: a, value: '{value}'}}]}}}}"
    site.write("web.yaml", route() + f"  rules: [{{filters: [{header}]}}]\n")

    site.look()

    place = "web.yaml:8: spec.rules[0].filters[0].requestHeaderModifier.set[0].value"
    assert [each for each in site.problems() if each.startswith(place) and "is not a valid header value" in each]


def test_the_store_knows_whether_all_broken_objects_have_a_name(site: Site) -> None:
    site.write("web.yaml", "kind: HTTPRoute\nmetadata: {name: [\n")
    assert not site.look().are_all_named

    site.write("web.yaml", route(hostname="A_B"))

    assert site.look().are_all_named


def test_a_broken_file_that_cannot_be_read_later_keeps_the_last_good_version(site: Site) -> None:
    manifests = Manifests()
    path = site.root / "web.yaml"
    manifests.put(path, route().encode())
    manifests.put(path, b"kind: [")

    manifests.fail(path, "Permission denied")

    assert Entry(Kind.HTTP_ROUTE, WEB) in manifests.reading().admitted


def test_a_class_cannot_change_its_controller_name(site: Site) -> None:
    """As at an API server, where the field is immutable: all Gateways of the class would go with it."""
    site.write("class.yaml", CLASS)
    site.look()
    site.write("class.yaml", CLASS.replace("example.org/controller", "example.org/contoller"))

    change = site.look()

    (kept,) = change.snapshot.all(Kind.GATEWAY_CLASS).values()
    assert isinstance(kept, GatewayClass)
    assert kept.spec.controller_name == "example.org/controller"
    (problem,) = site.problems()
    assert problem.startswith(
        "class.yaml:4: spec.controllerName was 'example.org/controller' and is 'example.org/contoller'"
    )

    site.write("class.yaml", "")
    site.look()
    site.write("class.yaml", CLASS.replace("example.org/controller", "example.org/other"))

    assert not site.problems()
    (new,) = site.look().snapshot.all(Kind.GATEWAY_CLASS).values()
    assert isinstance(new, GatewayClass)
    assert new.spec.controller_name == "example.org/other"


@pytest.mark.parametrize("is_first", [True, False], ids=["to a file before", "to a file after"])
def test_a_class_cannot_change_its_controller_name_by_moving_to_another_file(site: Site, is_first: bool) -> None:
    moved = "a.yaml" if is_first else "m.yaml"
    site.write("class.yaml", CLASS)
    site.look()
    renamed = CLASS.replace("example.org/controller", "example.org/contoller")
    site.write(moved, renamed)
    (site.root / "class.yaml").unlink()

    def names(site: Site) -> list[str]:
        return [item.spec.controller_name for item in classes(site)]

    assert names(site) == ["example.org/controller"]
    (problem,) = site.problems()
    assert problem.startswith(f"{moved}:1: spec.controllerName was 'example.org/controller' and is")

    site = Site(site.root.parent)
    assert names(site) == ["example.org/controller"], "remembered with the file that has the class now"
    site.write(moved, CLASS)
    assert (names(site), site.problems()) == (["example.org/controller"], [])
    site.write("0.yaml", renamed)
    assert names(site) == ["example.org/controller"], "a second definition that comes first does not count either"
    (site.root / "0.yaml").unlink()
    site.write(moved, "")
    assert names(site) == []
    site.write(moved, renamed)
    assert (names(site), site.problems()) == (["example.org/contoller"], [])


def test_a_last_good_version_with_an_older_controller_name_does_not_take_over_from_a_file_that_goes(
    tmp_path: Path,
) -> None:
    site = Site(tmp_path)
    site.write("class.yaml", CLASS)
    site.look()
    site.write("class.yaml", "kind: [")
    site.look()
    other = "example.org/other"
    site.write("a.yaml", CLASS.replace("example.org/controller", other))  # while no controller runs
    site = Site(tmp_path)
    names = [item.spec.controller_name for item in classes(site)]
    (site.root / "a.yaml").unlink()

    assert (names, [item.spec.controller_name for item in classes(site)]) == ([other], [other])


def test_a_namespace_on_a_cluster_scoped_object_is_refused(site: Site) -> None:
    site.write("class.yaml", CLASS.replace("name: web", "name: web, namespace: infra"))

    site.look()

    assert site.problems() == [
        "class.yaml:3: metadata.namespace is not allowed for a GatewayClass, which has cluster scope"
    ]


def test_a_broken_document_leaves_the_others_of_its_file_alone(site: Site) -> None:
    site.write("many.yaml", route("web") + "---\n" + route("other"))
    site.look()

    site.write("many.yaml", route("web", hostname="A_B") + "---\n" + route("other", hostname="new.example.org"))

    assert site.hostnames(WEB) == ("a.example.org",)
    assert site.hostnames(Key("default", "other")) == ("new.example.org",)


def test_an_object_that_was_never_good_is_reported_with_its_place(site: Site) -> None:
    path = site.write("web.yaml", route(hostname="A_B"))

    change = site.look()

    problem = change.unreadable[Entry(Kind.HTTP_ROUTE, WEB)]
    assert site.problems() == [f"web.yaml:7: {problem.reason}"]
    assert "'A_B' is not a domain name" in problem.reason
    assert WEB not in change.snapshot.all(Kind.HTTP_ROUTE)
    path.unlink()
    assert site.look().unreadable == {}


def test_a_namespace_in_use_is_there_again_when_its_broken_manifest_is_removed(site: Site) -> None:
    site.write("web.yaml", route())
    path = site.write("default.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: default, labels: {a: 1}}\n")
    broken = site.look().snapshot.all(Kind.NAMESPACE)

    path.unlink()

    assert Key("", "default") not in broken
    assert Key("", "default") in site.look().snapshot.all(Kind.NAMESPACE)
