"""The provider's API in `make demo`, simulated: it stores the tunnel's ingress document."""

import base64
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from examples.stage import Running

LOG = "provider.log"


class TokenContent(msgspec.Struct, frozen=True):
    """What a connector's token contains besides its secret."""

    account: str = msgspec.field(name="a")
    tunnel: str = msgspec.field(name="t")

    @classmethod
    def of(cls, token: str) -> "TokenContent":
        return msgspec.json.decode(base64.b64decode(token), type=cls)


@contextmanager
def provider(directory: Path, token: TokenContent) -> Iterator[str]:
    """Yields the base URL of an API that knows this tunnel, and runs for the duration of the block."""
    command = [sys.executable, "-m", "tests.support.provider", "--account", token.account, "--tunnel", token.tunnel]
    program = Running(command, os.environ, directory / LOG)
    try:
        yield program.wait_for_line("http://")
    finally:
        program.end()
