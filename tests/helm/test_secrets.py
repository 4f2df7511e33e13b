"""Which Secrets the controller may read: those of all namespaces, or of named ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.helm.chart import CHART, NAMESPACE, Helm, Object, Refused, Values, one
from tests.helm.releases import DIRECT, EVERYTHING, IMAGE, changed, controller_options, program
from tests.kube.kubeenv import Environment
from tests.kube.processes import wait_until
from tests.support.dns_endpoints import KubeApi
from tests.support.programs import built_program

NAMES = "controller.secretNamespaces"
NAMED = changed(DIRECT, NAMES, ["shop", "payments"])
VARIABLE = "TUNNELGW_SECRET_NAMESPACES"
READ = ["get", "list", "watch"]
IN_TIME_S = 30.0
RBAC = "/apis/rbac.authorization.k8s.io/v1"


def of_secrets(objects: list[Object], kind: str) -> list[Object]:
    return [each for each in objects if each["kind"] == kind and each["metadata"]["name"].endswith("-secrets")]


def verbs(role: Object) -> set[str]:
    """The verbs on Secrets."""
    return {verb for rule in role["rules"] if "secrets" in rule["resources"] for verb in rule["verbs"]}


# -- what is rendered -------------------------------------------------------------------------------------------------


def test_named_namespaces_remove_secrets_and_nothing_else_from_the_cluster_role(helm: Helm) -> None:
    everywhere, named = (one(helm.render(values), "ClusterRole") for values in (DIRECT, NAMED))
    text = yaml.safe_dump(everywhere)

    assert verbs(everywhere) == {*READ}
    assert text.count("- secrets\n") == 1
    assert named == yaml.safe_load(text.replace("  - secrets\n", ""))


@pytest.mark.parametrize(
    ("given", "namespaces"),
    [
        (["shop", "payments"], [NAMESPACE, "payments", "shop"]),
        (["shop", NAMESPACE], [NAMESPACE, "shop"]),
        ([NAMESPACE], [NAMESPACE]),
    ],
)
def test_each_named_namespace_and_the_releases_own_have_one_secrets_role_and_binding(
    helm: Helm, given: list[str], namespaces: list[str]
) -> None:
    objects = helm.render(changed(DIRECT, NAMES, given))
    account = one(objects, "ServiceAccount")["metadata"]["name"]
    roles, bindings = (of_secrets(objects, kind) for kind in ("Role", "RoleBinding"))

    for found in (roles, bindings):
        assert sorted(each["metadata"]["namespace"] for each in found) == namespaces
    (rules,) = {yaml.safe_dump(role["rules"]) for role in roles}
    assert yaml.safe_load(rules) == [{"apiGroups": [""], "resources": ["secrets"], "verbs": READ}]
    assert yaml.safe_load(rules) == yaml.safe_load((CHART / "files" / "secretsrole.yaml").read_text())["rules"]
    (name,) = {role["metadata"]["name"] for role in roles}
    for binding in bindings:
        assert binding["roleRef"] == {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}]


def test_named_namespaces_do_not_affect_the_right_to_create_the_proxies_token(helm: Helm) -> None:
    before, named = (one(helm.render(values), "Role", "-controller") for values in (DIRECT, NAMED))

    assert named == before
    assert verbs(named) == {"create"}


def test_the_right_to_create_secrets_is_only_given_if_the_controller_creates_the_proxies_token(helm: Helm) -> None:
    """Whoever may create Secrets can have a token for each ServiceAccount of the namespace."""
    creating, given = (
        one(helm.render(values), "Role", "-controller")
        for values in (DIRECT, changed(DIRECT, "proxy.authSecret.name", "theirs"))
    )

    assert given["rules"] == [rule for rule in creating["rules"] if "secrets" not in rule["resources"]]
    assert verbs(creating) == {"create"}


@pytest.mark.parametrize("given", [[], None])
def test_without_named_namespaces_nothing_is_added(helm: Helm, given: list[str] | None) -> None:
    with_none = changed(DIRECT, NAMES, given)
    texts = {helm.run("template", "web", str(CHART), values=values) for values in (DIRECT, with_none)}
    objects = helm.render(with_none)

    assert len(texts) == 1
    assert of_secrets(objects, "Role") == of_secrets(objects, "RoleBinding") == []
    assert VARIABLE not in {each["name"] for each in program(objects, "controller")["env"]}


def test_the_controller_gets_the_named_namespaces(helm: Helm) -> None:
    assert controller_options(helm.render(NAMED)).secret_namespaces == ("shop", "payments")


def test_naming_only_the_releases_namespace_does_not_mean_all_namespaces(helm: Helm) -> None:
    assert controller_options(helm.render(changed(DIRECT, NAMES, [NAMESPACE]))).secret_namespaces == (NAMESPACE,)


def test_an_extra_variable_for_other_namespaces_is_refused(helm: Helm) -> None:
    extra = [{"name": VARIABLE, "value": "other"}]

    with pytest.raises(Refused, match=rf"controller\.extraEnv: {VARIABLE} is set by the chart"):
        helm.render(changed(NAMED, "controller.extraEnv", extra))


def test_numeric_namespaces_stay_strings(helm: Helm) -> None:
    objects = helm.render(changed(DIRECT, NAMES, ["42"]), namespace="7")

    assert sorted(each["metadata"]["namespace"] for each in of_secrets(objects, "Role")) == ["42", "7"]
    assert controller_options(objects).secret_namespaces == ("42",)


def test_roles_and_bindings_have_the_labels_of_every_object(helm: Helm) -> None:
    values = changed(changed(EVERYTHING, NAMES, ["shop"]), "commonLabels", {"team": "edge"})
    objects = helm.render(values)
    wanted = one(objects, "ClusterRole")["metadata"]["labels"]

    found = [*of_secrets(objects, "Role"), *of_secrets(objects, "RoleBinding")]
    assert [each["metadata"]["labels"] for each in found] == [wanted] * 4
    assert wanted["team"] == "edge"


def test_without_rbac_the_controller_still_gets_the_named_namespaces(helm: Helm) -> None:
    objects = helm.render(changed(NAMED, "controller.rbac.create", False))

    assert {each["kind"] for each in objects} & {"ClusterRole", "Role", "RoleBinding"} == set()
    assert controller_options(objects).secret_namespaces == ("shop", "payments")


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (["shop", "shop"], "equal"),
        (["Shop"], "pattern"),
        (["shop.example"], "pattern"),
        (["shop,payments"], "pattern"),
        (["*"], "pattern"),
        ([""], "pattern"),
        (["s" * 64], "63"),
        ([42], "string"),
        ("shop", "array"),
    ],
)
def test_an_invalid_list_of_namespaces_is_refused(helm: Helm, given: object, complaint: str) -> None:
    with pytest.raises(Refused, match=rf"controller/secretNamespaces.*{complaint}"):
        helm.render(changed(DIRECT, NAMES, given))


def test_helm_lint_reports_nothing_about_named_namespaces(helm: Helm) -> None:
    helm.run("lint", "--strict", str(CHART), values=NAMED)


# -- in the API server ------------------------------------------------------------------------------------------------


class Installed:
    """Releases in a real API server, in a namespace of their own; their Pods do not run."""

    def __init__(self, api: KubeApi, helm: Helm) -> None:
        self.api = api
        self._helm = helm
        self.namespace = api.create_namespace("gateways")

    def do(self, verb: str, namespaces: list[str], home: str = "", user: str = "") -> None:
        """Install or upgrade. `user`: another than the administrator."""
        values: Values = {
            "image": IMAGE,
            "controller": {"secretNamespaces": namespaces},
            "proxy": {"enabled": False},
            "gatewayClass": {"create": False},
        }
        where = ["--namespace", home or self.namespace, *(["--skip-crds"] if verb == "install" else [])]
        as_user = ["--kube-as-user", user] if user else []
        self._helm.run(verb, "web", str(CHART), *where, *as_user, values=values)

    def uninstall(self) -> None:
        self._helm.run("uninstall", "web", "--namespace", self.namespace)

    def may(self, verb: str, namespace: str = "", resource: str = "secrets", *, home: str = "", user: str = "") -> bool:
        """Whether the controller, or `user`, is allowed. Without a namespace: in all. `resource`: with its group."""
        name, _, group = resource.partition(".")
        asked = {"verb": verb, "group": group, "resource": name, "namespace": namespace}
        account = f"system:serviceaccount:{home or self.namespace}:web-tunnelgw-controller"
        document = {"spec": {"user": user or account, "resourceAttributes": asked}}
        answer = self.api.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", document)
        return bool(answer["status"]["allowed"])

    def until(
        self,
        verb: str,
        namespace: str = "",
        resource: str = "secrets",
        *,
        is_allowed: bool = True,
        home: str = "",
        user: str = "",
    ) -> None:
        """Roles take effect a moment after their creation, each kind on its own."""

        def is_so() -> bool:
            return self.may(verb, namespace, resource, home=home, user=user) is is_allowed

        asked = f"{verb} {resource} in {namespace or 'all'}"
        assert wait_until(is_so, IN_TIME_S), f"{asked} is not {is_allowed} after {IN_TIME_S:g} s"

    def roles(self, namespace: str) -> list[str]:
        return [
            each["metadata"]["name"] for each in self.api.call("GET", f"{RBAC}/namespaces/{namespace}/roles")["items"]
        ]


@pytest.fixture
def installed(kube: Environment, tmp_path: Path) -> Iterator[Installed]:
    with KubeApi(kube) as api:
        yield Installed(api, Helm(built_program("helm"), tmp_path, kube.kubeconfig))


def test_the_service_account_may_read_secrets_of_named_namespaces_only(installed: Installed) -> None:
    shop, other = (installed.api.create_namespace(name) for name in ("shop", "other"))
    installed.do("install", [shop])
    for namespace in (shop, installed.namespace):
        for verb in READ:
            installed.until(verb, namespace)

    denied = {
        (verb, namespace) for verb in READ for namespace in (other, "kube-system", "") if installed.may(verb, namespace)
    }
    assert denied == set()
    for verb in ("create", "update", "patch", "delete", "deletecollection"):
        allowed = {namespace for namespace in (shop, installed.namespace, other, "") if installed.may(verb, namespace)}
        assert allowed == ({installed.namespace} if verb == "create" else set())
    installed.until("list", resource="configmaps")


def test_an_upgrade_grants_and_revokes_namespaces_and_an_uninstall_removes_all_roles(installed: Installed) -> None:
    first, second = (installed.api.create_namespace(name) for name in ("first", "second"))
    installed.do("install", [])
    installed.until("list", "")

    installed.do("upgrade", [first])
    installed.until("list", "", is_allowed=False)
    installed.until("list", first)
    installed.do("upgrade", [second])
    installed.until("list", second)
    installed.until("list", first, is_allowed=False)
    assert [len(installed.roles(namespace)) for namespace in (first, second, installed.namespace)] == [0, 1, 2]

    installed.do("upgrade", [])
    installed.until("list", "")
    assert [len(installed.roles(namespace)) for namespace in (first, second, installed.namespace)] == [0, 0, 1]
    installed.do("upgrade", [second])
    installed.uninstall()
    assert [len(installed.roles(namespace)) for namespace in (first, second, installed.namespace)] == [0, 0, 0]
    installed.until("list", second, is_allowed=False)


def test_releases_of_the_same_name_may_read_the_same_namespace(installed: Installed) -> None:
    shop, home = (installed.api.create_namespace(name) for name in ("shop", "home"))

    for each in (installed.namespace, home):
        installed.do("install", [shop], each)

    for each in (installed.namespace, home):
        installed.until("list", shop, home=each)
        installed.until("list", each, home=each)
    assert not installed.may("list", home)


def test_a_missing_namespace_is_refused_before_anything_is_changed(installed: Installed) -> None:
    """An upgrade would revoke the right on all namespaces, and fail before it grants one on any."""
    installed.do("install", [])
    installed.until("list", "")

    with pytest.raises(Refused, match=r"controller\.secretNamespaces: namespace nowhere does not exist"):
        installed.do("upgrade", ["nowhere"])

    role = installed.api.call("GET", f"{RBAC}/clusterroles/{installed.namespace}:web-tunnelgw-controller")
    assert verbs(role) == {*READ}


def test_a_namespace_that_is_being_deleted_is_refused_before_anything_is_changed(installed: Installed) -> None:
    """No Role can be created in it, so an upgrade would fail half way."""
    ending = installed.api.create_namespace("ending")
    installed.do("install", [])
    installed.until("list", "")
    installed.api.call("DELETE", f"/api/v1/namespaces/{ending}")

    with pytest.raises(Refused, match=rf"namespace {ending} is being deleted, so there can be no Role"):
        installed.do("upgrade", [ending])

    role = installed.api.call("GET", f"{RBAC}/clusterroles/{installed.namespace}:web-tunnelgw-controller")
    assert verbs(role) == {*READ}


def test_a_user_who_may_read_secrets_only_of_the_named_namespaces_can_install(installed: Installed) -> None:
    """The API server lets nobody grant a right that they do not have, so the account must get no more than those."""
    shop, user = installed.api.create_namespace("shop"), f"installer-of-{installed.namespace}"
    group = "rbac.authorization.k8s.io"
    rules = yaml.safe_load((CHART / "files" / "clusterrole.yaml").read_text().replace("secrets, ", ""))["rules"]
    making = {"apiGroups": [group], "resources": ["clusterroles", "clusterrolebindings"]}
    rules.append({**making, "verbs": ["get", "create", "patch", "delete"]})
    installed.api.call("POST", f"{RBAC}/clusterroles", {"metadata": {"name": user}, "rules": rules})
    bindings = [(f"{RBAC}/clusterrolebindings", user)]
    # The parts of the role `admin`: the controller manager, which would aggregate them, does not run here.
    bindings += [
        (f"{RBAC}/namespaces/{namespace}/rolebindings", f"system:aggregate-to-{part}")
        for namespace in (installed.namespace, shop)
        for part in ("admin", "edit", "view")
    ]
    for path, role in bindings:
        ref = {"apiGroup": group, "kind": "ClusterRole", "name": role}
        subjects = [{"apiGroup": group, "kind": "User", "name": user}]
        metadata = {"name": f"{user}-{role.replace(':', '-')}"}
        installed.api.call("POST", path, {"metadata": metadata, "roleRef": ref, "subjects": subjects})
    for namespace in (shop, installed.namespace):
        installed.until("list", namespace, user=user)
    for resource in making["resources"]:
        installed.until("create", resource=f"{resource}.{group}", user=user)

    with pytest.raises(Refused, match=r'permissions not currently held:\n.*"secrets"'):
        installed.do("install", [], user=user)
    installed.uninstall()
    installed.do("install", [shop], user=user)

    installed.until("list", shop)
    assert not installed.may("list")
