"""What the controller's options refuse together."""

from __future__ import annotations

import pytest

from daemonkit.options import BadOptions, parse
from tunnelgw.options import PREFIX, Options


@pytest.mark.parametrize("token", ["first\nsecond", "caf\u00e9"])
def test_a_token_that_no_header_can_carry_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(BadOptions, match=r"PROXY_AUTH_TOKEN .* is not one line of printable ASCII") as bad:
        parse(Options, prefix=PREFIX, argv=[], environ={"PROXY_AUTH_TOKEN": token})

    assert token not in str(bad.value)
