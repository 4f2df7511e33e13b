"""What external-dns's registries and policies promise on top of the webhook: `noop`, `upsert-only`, `create-only`."""

from dataclasses import replace

import pytest

from tests.support.controller import Controller, faults
from tests.support.desired import DESIRED, HeldRow, heritage, wanted
from tests.support.scene import Scene, Stage, changed
from tests.support.storeviews import UnifiView

# Under `noop` external-dns takes every listed record within its filter for its own; this protects the rows of
# other people.
NOOP_ENV = {
    "DOMAIN_FILTER": "example.org,in-addr.arpa",
    "DNSWEBHOOK_PROTECT": "by-hand.example.org,*.by-hand.example.org,theirs.example.org,cname-theirs.example.org",
}


def test_records_of_every_type_are_created_changed_and_removed_without_a_registry(stage: Stage) -> None:
    text = changed(DESIRED, "txt-word", ["altered"])
    with stage(registry="noop", env=NOOP_ENV) as scene:
        scene.desire(DESIRED)
        scene.apply_once()
        assert scene.store.held() == scene.expected(DESIRED)

        scene.start_counting()
        scene.apply_once()  # no "up to date": external-dns asks in each pass to delete the protected rows
        assert scene.store.writes == 0

        scene.objects.replace("txt-word", text.endpoint)
        scene.apply_once()
        assert scene.store.held() == scene.expected({**DESIRED, "txt-word": text})
        assert scene.store.writes == 1

        emptied = scene.desiring_nothing().once()
        assert emptied.exit_code == 0, emptied.log
        assert scene.store.held() == scene.foreign


def test_upsert_only_adds_and_changes_but_deletes_nothing(stage: Stage) -> None:
    with stage(policy="upsert-only") as scene:
        scene.desire(DESIRED)
        scene.apply_once()
        address, new = changed(DESIRED, "a-one", ["192.0.2.101"]), wanted("A", "new.example.org", ["192.0.2.130"])

        scene.objects.replace("a-one", address.endpoint)
        scene.objects.create("a-new", [new.endpoint])
        scene.objects.delete("a-ttl")
        scene.objects.delete("mx-two")
        scene.apply_once()

        assert scene.store.held() == scene.expected({**DESIRED, "a-one": address, "a-new": new})
        assert scene.external_dns.once().is_no_op


def test_upsert_only_never_adds_a_cname_beside_the_address_that_it_does_not_delete(stage: Stage) -> None:
    """For a change of type the policy sends the create but not the delete; a resolver refuses to load both."""
    with stage(policy="upsert-only") as scene:
        scene.desire(DESIRED)
        scene.apply_once()
        alias = wanted("CNAME", "three.example.org", ["moved.example.net"])
        address = changed(DESIRED, "a-ttl", ["192.0.2.102"])

        scene.objects.replace("a-three", alias.endpoint)
        scene.objects.replace("a-ttl", address.endpoint)
        scene.start_counting()
        scene.external_dns.once()
        (apply,) = [call for call in scene.recorder.calls if (call.method, call.path) == ("POST", "/records")]

        assert scene.store.held() == scene.expected({**DESIRED, "a-ttl": address})
        assert 500 <= apply.status_code <= 510  # a soft error: external-dns goes on


def test_create_only_adds_but_changes_and_deletes_nothing(stage: Stage) -> None:
    with stage(policy="create-only") as scene:
        scene.desire(DESIRED)
        scene.apply_once()
        new = wanted("A", "new.example.org", ["192.0.2.130"])

        scene.objects.replace("a-one", changed(DESIRED, "a-one", ["192.0.2.101"]).endpoint)
        scene.objects.create("a-new", [new.endpoint])
        scene.objects.delete("a-ttl")
        scene.apply_once()

        assert scene.store.held() == scene.expected({**DESIRED, "a-new": new})
        assert scene.external_dns.once().is_no_op


OWNERSHIP_FORMATS = {
    "encrypted": ["--txt-encrypt-enabled", f"--txt-encrypt-aes-key={'k' * 32}"],
    "in a label of its own": ["--txt-prefix=%{record_type}.", "--txt-wildcard-replacement=any"],
    "behind the name": ["--txt-suffix=-%{record_type}", "--txt-wildcard-replacement=any"],
}
LONGEST_LABEL = wanted("A", f"{'x' * 63}.example.org", ["192.0.2.131"])


@pytest.mark.parametrize("store", ["v2"], indirect=True)
@pytest.mark.parametrize("ownership", OWNERSHIP_FORMATS)
def test_records_are_created_changed_and_removed_with_every_format_of_ownership_records(
    stage: Stage, ownership: str
) -> None:
    chosen = {name: DESIRED[name] for name in ("a-one", "a-wildcard", "aaaa-odd", "cname-one", "mx-two")}
    if ownership == "in a label of its own":
        chosen["a-longest"] = LONGEST_LABEL  # with `a-` before it, external-dns would send no ownership record
    with stage() as scene:
        external_dns = replace(scene.external_dns, extra=OWNERSHIP_FORMATS[ownership])
        scene.desire(chosen)
        assert external_dns.once().exit_code == 0, scene.daemon.tail
        assert len(scene.store.held() - scene.foreign) == 2 * len(chosen) + 1  # two mail exchangers
        assert external_dns.once().is_no_op

        scene.objects.replace("cname-one", wanted("A", "alias.example.org", ["192.0.2.120"]).endpoint)
        assert external_dns.once().exit_code == 0, scene.daemon.tail
        assert external_dns.once().is_no_op

        assert external_dns.in_namespace(scene.kube_api.create_namespace("empty")).once().exit_code == 0
        assert scene.store.held() == scene.foreign


@pytest.mark.parametrize("store", ["v2"], indirect=True)
@pytest.mark.parametrize(
    "setting",
    ["--txt-wildcard-replacement=any", "--txt-prefix=own-", "--txt-suffix=-own", "--txt-prefix=%{record_type}."],
)
def test_no_record_is_written_under_an_ownership_record_that_another_owner_has_left(stage: Stage, setting: str) -> None:
    """external-dns adds none beside it. The record would be the other owner's: never changed, and never removed."""
    chosen = {"a-wildcard": wanted("A", "*.example.org", ["192.0.2.15"]), "a-three": DESIRED["a-three"]}
    extra = [setting] if "wildcard" in setting else [setting, "--txt-wildcard-replacement=any"]
    with stage() as scene:
        external_dns = replace(scene.external_dns, extra=extra)
        scene.desire(chosen)
        assert replace(external_dns, owner_id="gone").once().exit_code == 0, scene.daemon.tail
        texts_left = {row for row in scene.store.held() - scene.foreign if row.type == "TXT"}
        scene.store.clear()
        scene.store.add(scene.foreign | texts_left)

        assert external_dns.once().exit_code != 0
        assert scene.store.held() == scene.foreign | texts_left

        scene.store.clear()
        scene.store.add(scene.foreign)
        assert external_dns.once().exit_code == 0, scene.daemon.tail
        assert external_dns.once().is_no_op


ONE, TWO = DESIRED["a-one"], wanted("A", "second.example.org", ["192.0.2.132"])
BY_HAND = HeldRow("second.example.org", "A", "192.0.2.77")


def controller_of(scene: Scene) -> Controller:
    assert isinstance(scene.store, UnifiView)
    return scene.store.controller


def texts(scene: Scene, name: str) -> list[str]:
    return [row.value for row in scene.store.held() if (row.name, row.type) == (name, "TXT")]


@pytest.mark.parametrize("store", ["v2"], indirect=True)
@pytest.mark.parametrize("direction", ["on", "off"])
def test_records_are_changed_and_removed_with_their_only_ownership_text_after_encryption_is_toggled(
    stage: Stage, direction: str
) -> None:
    """external-dns then deletes a text that was never stored. A stored one left behind would claim later records."""
    encrypted = OWNERSHIP_FORMATS["encrypted"]
    first, then = ([], encrypted) if direction == "on" else (encrypted, encrypted[1:])
    with stage() as scene:
        external_dns = replace(scene.external_dns, extra=first)
        scene.desire({"one": ONE, "two": TWO})
        assert external_dns.once().exit_code == 0, scene.daemon.tail
        external_dns = replace(scene.external_dns, extra=then)

        for address in ("192.0.2.133", "192.0.2.134"):
            scene.objects.replace("one", wanted("A", ONE.name, [address]).endpoint)
            assert external_dns.once().exit_code == 0, scene.daemon.tail
            (text,) = texts(scene, ONE.ownership_name)
            assert ("heritage" in text) == (direction == "off")
        scene.objects.delete("two")
        assert external_dns.once().exit_code == 0, scene.daemon.tail
        assert texts(scene, TWO.ownership_name) == []
        scene.store.add([BY_HAND])
        assert external_dns.once().is_no_op

        assert BY_HAND in scene.store.held()


@pytest.mark.parametrize("store", ["v2"], indirect=True)
@pytest.mark.parametrize("obstacle", ["a disabled row", "an error of the controller"])
def test_an_encrypted_ownership_text_is_not_rewritten_while_its_record_cannot_be_written(
    stage: Stage, obstacle: str
) -> None:
    """external-dns encrypts it anew in each pass. Each write makes the gateway reload its resolver."""
    value = "192.0.2.243" if obstacle == "a disabled row" else "192.0.2.133"
    with stage() as scene:
        controller = controller_of(scene)
        external_dns = replace(scene.external_dns, extra=OWNERSHIP_FORMATS["encrypted"])
        scene.desire({"one": ONE})
        assert external_dns.once().exit_code == 0, scene.daemon.tail
        before = scene.store.held()
        scene.objects.replace("one", wanted("A", ONE.name, [value]).endpoint)
        controller.fault(faults.bad_gateway(), "write", name=ONE.name)
        scene.start_counting()

        for _ in range(2):
            external_dns.once()

        applies = [call for call in scene.recorder.calls if (call.method, call.path) == ("POST", "/records")]
        assert [500 <= call.status_code <= 510 for call in applies] == [True, True]
        assert controller.resolver_reloads == 0
        assert scene.store.held() == before

        controller.faults.clear()
        scene.objects.replace("one", wanted("A", ONE.name, ["192.0.2.134"]).endpoint)
        assert external_dns.once().exit_code == 0, scene.daemon.tail
        assert external_dns.once().is_no_op
        scene.objects.delete("one")
        assert external_dns.once().exit_code == 0, scene.daemon.tail
        assert scene.store.held() == scene.foreign


@pytest.mark.parametrize("store", ["v2"], indirect=True)
@pytest.mark.parametrize("ownership", ["readable", "encrypted"])
def test_nothing_is_left_behind_when_a_failed_replacement_stays_in_the_txt_cache(stage: Stage, ownership: str) -> None:
    """With a cache external-dns assumes that what it sent is stored, even after a failure, and refers to it later."""
    with stage() as scene:
        controller = controller_of(scene)
        extra = [*OWNERSHIP_FORMATS.get(ownership, ()), "--txt-cache-interval=1h"]
        other = wanted("A", ONE.name, ["192.0.2.133"])  # from another resource, which the ownership text names
        scene.desire({"one": ONE})
        with replace(scene.external_dns, extra=extra).loop() as loop:
            loop.wait_settled()
            scene.desire({"other": other})
            loop.wait_settled()
            soft_errors = loop.soft_errors
            fault = controller.fault(faults.bad_gateway(), "write")
            scene.objects.delete("one")
            loop.wait_for_soft_error(soft_errors)
            controller.faults.remove(fault)
            other = wanted("A", ONE.name, ["192.0.2.134"])
            scene.objects.replace("other", other.endpoint)
            scene.until_asked_for({"other": other})
            loop.wait_settled()
            assert HeldRow(ONE.name, "A", "192.0.2.134") in scene.store.held()
            assert len(texts(scene, ONE.ownership_name)) == 1
            scene.objects.delete("other")
            scene.until_asked_for({})
            loop.wait_settled()

        assert scene.store.held() == scene.foreign


@pytest.mark.parametrize("store", ["v2"], indirect=True)
def test_nothing_is_left_behind_when_a_failed_removal_stays_in_the_txt_cache(stage: Stage) -> None:
    """With a cache external-dns assumes that failed deletes succeeded: of values of a set, then of the whole set."""
    with stage() as scene:
        controller = controller_of(scene)
        several = wanted("A", ONE.name, ["192.0.2.133", "192.0.2.134"])
        scene.desire({"one": several})
        with replace(scene.external_dns, extra=["--txt-cache-interval=1h"]).loop() as loop:
            loop.wait_settled()
            for gone in (None, ONE):
                soft_errors = loop.soft_errors
                fault = controller.fault(faults.bad_gateway(), "delete")
                if gone:
                    scene.objects.delete("one")
                else:
                    scene.objects.replace("one", wanted("A", ONE.name, ["192.0.2.133"]).endpoint)
                loop.wait_for_soft_error(soft_errors)
                controller.faults.remove(fault)
                scene.until_asked_for({} if gone else {"one": wanted("A", ONE.name, ["192.0.2.133"])})
                loop.wait_settled()
            other = wanted("A", ONE.name, ["192.0.2.135"])
            scene.desire({"other": other})
            scene.until_asked_for({"other": other})
            loop.wait_settled()
            assert scene.store.held() == scene.expected({"other": other})
            scene.objects.delete("other")
            scene.until_asked_for({})
            loop.wait_settled()

        assert scene.store.held() == scene.foreign


@pytest.mark.parametrize("store", ["v2"], indirect=True)
def test_an_encrypted_ownership_text_names_the_new_owner_after_a_migration(stage: Stage) -> None:
    encrypted = OWNERSHIP_FORMATS["encrypted"]
    with stage() as scene:
        scene.desire({"one": ONE, "two": TWO})
        assert replace(scene.external_dns, extra=encrypted).once().exit_code == 0, scene.daemon.tail
        new = replace(scene.external_dns, owner_id="new", extra=encrypted)

        migrating = replace(new, extra=[*encrypted, "--migrate-from-txt-owner=tunnelgw-tests"])
        assert migrating.once().exit_code == 0, scene.daemon.tail
        assert new.once().is_no_op
        for name in ("one", "two"):
            scene.objects.delete(name)
        assert new.once().exit_code == 0, scene.daemon.tail

        assert scene.store.held() == scene.foreign


@pytest.mark.parametrize(
    "setting", ["--txt-prefix=new-", "--txt-suffix=-new", "--txt-owner-id=new", "--domain-filter=one.example.org"]
)
@pytest.mark.parametrize("store", ["v2"], indirect=True)
def test_records_that_other_settings_do_not_find_stay_and_are_owned_again_with_the_old_settings(
    stage: Stage, setting: str
) -> None:
    with stage() as scene:
        scene.desire({"two": TWO})
        scene.apply_once()
        before = scene.store.held()
        scene.objects.delete("two")

        owner_id = setting.partition("--txt-owner-id=")[2] or scene.external_dns.owner_id
        extra = [setting] if owner_id == scene.external_dns.owner_id else []
        assert replace(scene.external_dns, owner_id=owner_id, extra=extra).once().is_no_op, scene.daemon.tail
        assert scene.store.held() == before

        assert scene.external_dns.in_namespace("no-such-namespace").once().exit_code == 0, scene.daemon.tail
        assert scene.store.held() == scene.foreign


@pytest.mark.parametrize("store", ["v2"], indirect=True)
def test_a_migration_replaces_the_old_owners_ownership_texts(stage: Stage) -> None:
    with stage() as scene:
        scene.desire({"one": ONE, "two": TWO})
        scene.apply_once()
        new = replace(scene.external_dns, owner_id="new")
        namespace = scene.objects.namespace
        scene.store.add([HeldRow(ONE.ownership_name, "TXT", heritage("z-other", namespace, "one"))])

        scene.objects.delete("two")
        assert replace(new, extra=["--migrate-from-txt-owner=tunnelgw-tests"]).once().exit_code == 0, scene.daemon.tail
        assert sorted(texts(scene, ONE.ownership_name)) == [
            heritage(owner, namespace, "one") for owner in ("new", "z-other")
        ]
        assert texts(scene, TWO.ownership_name) == []

        scene.objects.replace("one", wanted("A", ONE.name, ["192.0.2.133"]).endpoint)
        assert new.once().exit_code == 0, scene.daemon.tail
        assert HeldRow(ONE.name, "A", "192.0.2.133") in scene.store.held()
        assert new.in_namespace(scene.kube_api.create_namespace("empty")).once().exit_code == 0
        assert texts(scene, ONE.ownership_name) == [heritage("z-other", namespace, "one")]


@pytest.mark.parametrize("store", ["v2", "integration"], indirect=True)
def test_an_address_stays_while_a_disabled_row_prevents_the_cname_that_replaces_it(stage: Stage) -> None:
    """The controller refuses a CNAME beside a disabled row. Removing the address first would empty the name."""
    with stage() as scene:
        scene.desire({"one": ONE})  # whose name has a disabled row
        scene.apply_once()
        scene.objects.replace("one", wanted("CNAME", ONE.name, ["elsewhere.example.net"]).endpoint)
        scene.start_counting()

        for _ in range(2):
            scene.external_dns.once()

        assert scene.store.writes == 0
        assert scene.store.held() == scene.expected({"one": ONE})
        refusals = [call for call in scene.recorder.calls if (call.method, call.path) == ("POST", "/records")]
        assert [call.status_code for call in refusals] == [500, 500]


NAME_137 = ".".join(["n" * 60, "o" * 60, "lim", "example.org"])
HOST_137 = ".".join(["h" * 60, "i" * 60, "lim", "example.net"])


@pytest.mark.parametrize("store", ["v2"], indirect=True)
def test_records_that_a_newer_firmwares_api_would_refuse_survive_the_upgrade(stage: Stage, store: UnifiView) -> None:
    """external-dns removes records that adjusting leaves out, here from the LAN's DNS."""
    assert 137 == len(NAME_137)
    long = {
        "name": wanted("A", NAME_137, ["192.0.2.133", "192.0.2.134"], ttl_s=300),
        "alias": wanted("CNAME", "alias.example.org", [HOST_137], ttl_s=300),
        "mail": wanted("MX", "mail.example.org", [f"10 {HOST_137}", "20 mx.example.net"]),
    }
    controller = store.controller
    controller.fault(faults.html_page(404), "info")  # as firmware before 9.3 answers
    with stage(env={"UNIFI_API": "auto"}) as scene:
        store.clear()
        scene.desire(long)
        with scene.external_dns.loop() as loop:
            loop.wait_settled()
            before = store.held()
            soft_errors = loop.soft_errors
            controller.faults.clear()
            controller.stop()
            loop.wait_for_soft_error(soft_errors)
            scene.start_counting()
            controller.start()
            scene.daemon.wait_for_message("controller API chosen", api="integration")
            loop.wait_settled()
            assert store.held() == before
            assert store.writes == 0

            fewer = changed(long, "name", ["192.0.2.133"])
            scene.objects.replace("name", fewer.endpoint)
            scene.until_asked_for({**long, "name": fewer})
            loop.wait_settled()
            assert store.held() == before - {HeldRow(NAME_137, "A", "192.0.2.134", 300)}

            for name in long:
                scene.objects.delete(name)
            scene.until_asked_for({})
            loop.wait_settled()
        assert store.held() == set()
