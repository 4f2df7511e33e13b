"""Names of backends in the document. What backends are made of is in the golden cases."""

import pytest

from proxy.document import Backend
from tests.tunnelgw.translate.world import World
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.translate.backends import BackendId, backend
from tunnelgw.translate.parts import problems_of_backend

WEB, GATEWAY = Key("apps", "web"), Key("infra", "gw")
LONGEST = Key("n" * 63, "x" * 253)


@pytest.mark.parametrize(
    ("id_", "name"),
    [
        (BackendId(Kind.SERVICE, WEB, 80), "apps/web:80"),
        (BackendId(Kind.SERVICE, WEB, 80, is_h2c=True), "apps/web:80+h2c"),
        (BackendId(Kind.SERVICE, WEB, 80, gateway=GATEWAY), "apps/web:80@infra/gw"),
        (BackendId(Kind.BACKEND, WEB), "backend.tunnelgw.dev/apps/web"),
        (BackendId(Kind.BACKEND, WEB, is_h2c=True), "backend.tunnelgw.dev/apps/web+h2c"),
    ],
)
def test_a_backend_is_named_after_its_object_protocol_and_gateway(id_: BackendId, name: str) -> None:
    assert id_.name == name


def test_the_longest_names_are_short_enough_for_the_document_and_differ() -> None:
    names = {BackendId(Kind.BACKEND, LONGEST, gateway=Key(LONGEST.namespace, "g" * 252 + end)).name for end in "ab"}

    assert len(names) == 2
    assert all(problems_of_backend(Backend(name)) == [] for name in names)


def test_a_backend_that_does_not_exist_has_no_addresses() -> None:
    world = World([])

    for id_ in (BackendId(Kind.SERVICE, WEB, 80), BackendId(Kind.BACKEND, WEB)):
        assert world.queries.ask(backend, id_) == Backend(id_.name)
