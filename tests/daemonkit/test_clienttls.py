"""Whom a client believes: the same with every Python."""

import ssl
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest

from daemonkit.clienttls import trusting, without_formalities
from tests.support.certificates import Authority, bare_authority

NAME = "proxy.example"


@pytest.fixture(scope="module")
def bare() -> Iterator[Authority]:
    with closing(bare_authority()) as authority:
        yield authority


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, name: str = NAME) -> None:
    """Raises ssl.SSLCertVerificationError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname=name)
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(2):
        with suppress(ssl.SSLWantReadError):
            ours.do_handshake()
        with suppress(ssl.SSLWantReadError):
            theirs.do_handshake()
    assert ours.getpeercert()


def test_an_authority_whose_certificate_does_not_say_what_its_key_is_for_is_believed(bare: Authority) -> None:
    server = bare.server_context(bare.issue(NAME))
    strict = ssl.create_default_context(cafile=str(bare.file))
    strict.verify_flags |= ssl.VERIFY_X509_STRICT  # as Python 3.13 has it by itself
    with pytest.raises(ssl.SSLCertVerificationError, match="key usage"):
        shake_hands(strict, server)

    shake_hands(trusting(str(bare.file)), server)
    shake_hands(without_formalities(strict), server)


def test_another_name_and_another_authority_are_refused_all_the_same(bare: Authority) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match=r"other\.example"):
        shake_hands(trusting(str(bare.file)), bare.server_context(bare.issue(NAME)), "other.example")
    with (
        closing(Authority()) as other,
        pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer"),
    ):
        shake_hands(trusting(str(bare.file)), other.server_context(other.issue(NAME)))
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(trusting(), bare.server_context(bare.issue(NAME)))
