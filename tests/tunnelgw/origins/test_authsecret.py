"""How long the token of the shared proxies is waited for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tunnelgw.sources.kubernetes.scriptedapi import ScriptedApi
from tunnelgw.model.meta import Key
from tunnelgw.origins.authsecret import shared_token
from tunnelgw.origins.origin import NoToken
from tunnelgw.sources.kubernetes.kubeconfig import load_configuration
from tunnelgw.sources.kubernetes.server import ApiServer

KEY = Key("home", "auth")
PATH = "/api/v1/namespaces/home/secrets/auth"
FORBIDDEN = (403, {"code": 403, "reason": "Forbidden", "message": "no"})
ABSENT = (404, {"code": 404, "reason": "NotFound"})
NOT_OF_THE_API = (200, b"<html>")
FOUND = (200, {"metadata": {"name": "auth", "namespace": "home"}, "data": {"auth-token": "dG9rZW4="}})


@pytest.fixture
def api() -> Iterator[ScriptedApi]:
    with ScriptedApi() as api:
        yield api


class Waits(threading.Event):
    """The daemon's `stop`: each wait takes no time, but lets this clock go on, and brings the next answer."""

    def __init__(self, api: ScriptedApi, answers: list[tuple[int, Any]]) -> None:
        super().__init__()
        self._api = api
        self._answers = answers
        self.now_s = 0.0
        self._next()

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.now_s += timeout
        self._next()
        return self.is_set()

    def _next(self) -> None:
        self._api.refusals[PATH] = self._answers.pop(0)


def token_after(api: ScriptedApi, folder: Path, *answers: tuple[int, Any]) -> str:
    path = str(api.kubeconfig(folder))
    stop = Waits(api, [*answers])
    server = ApiServer(lambda: load_configuration(path))
    try:
        token = shared_token(server, KEY, stop, is_managed=True, clock=lambda: stop.now_s)
    finally:
        server.close()
    assert token is not None
    return token.reveal()


def test_a_missing_permission_ends_the_wait_after_five_seconds(api: ScriptedApi, tmp_path: Path) -> None:
    assert token_after(api, tmp_path, *[FORBIDDEN] * 5, FOUND) == "token"
    with pytest.raises(NoToken, match="give the controller's account get and create on Secrets"):
        token_after(api, tmp_path, *[FORBIDDEN] * 6, FOUND)


@pytest.mark.parametrize("meanwhile", [ABSENT, NOT_OF_THE_API])
def test_a_permission_that_is_missing_again_later_is_waited_for_again(
    api: ScriptedApi, tmp_path: Path, meanwhile: tuple[int, Any]
) -> None:
    """After an outage it is a server that has just started, and has not loaded all roles yet."""
    assert token_after(api, tmp_path, FORBIDDEN, *[meanwhile] * 6, *[FORBIDDEN] * 3, FOUND) == "token"
