"""Which certificates a client trusts: the same with every Python."""

import os
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from daemonkit import filereading
from daemonkit.clienttls import distrust_hint, scheme_hint, trusting, without_formalities
from tests.support.certificates import Authority, bare_authority
from tests.support.descriptors import open_files

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


def test_authorities_come_from_a_pipe_too_which_is_not_waited_for_without_end(
    bare: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = tmp_path / "ca.pem"
    os.mkfifo(pipe)
    threading.Thread(target=pipe.write_bytes, args=[bare.file.read_bytes()], daemon=True).start()

    shake_hands(trusting(str(pipe)), bare.server_context(bare.issue(NAME)))

    monkeypatch.setattr(filereading, "WRITER_S", 0.1)
    with pytest.raises(OSError, match="nobody has written into this pipe"):
        trusting(str(pipe))


def test_a_ca_certificate_without_key_usage_is_trusted(bare: Authority) -> None:
    server = bare.server_context(bare.issue(NAME))
    strict = ssl.create_default_context(cafile=str(bare.file))
    strict.verify_flags |= ssl.VERIFY_X509_STRICT  # the default since Python 3.13
    with pytest.raises(ssl.SSLCertVerificationError, match="key usage"):
        shake_hands(strict, server)

    shake_hands(trusting(str(bare.file)), server)
    shake_hands(without_formalities(strict), server)


def test_an_authority_is_trusted_without_the_root_that_signed_it() -> None:
    below = trustme.CA().create_child_ca()
    with closing(Authority(below)) as authority:
        server = authority.server_context(authority.issue(NAME))
        whole = ssl.create_default_context(cafile=str(authority.file))
        whole.verify_flags &= ~ssl.VERIFY_X509_PARTIAL_CHAIN  # the default before Python 3.13
        with pytest.raises(ssl.SSLCertVerificationError, match="unable to get issuer certificate"):
            shake_hands(whole, server)

        shake_hands(trusting(str(authority.file)), server)
        shake_hands(without_formalities(whole), server)


def test_a_wrong_host_name_and_an_unknown_authority_are_still_refused(bare: Authority) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match=r"other\.example"):
        shake_hands(trusting(str(bare.file)), bare.server_context(bare.issue(NAME)), "other.example")
    with (
        closing(Authority()) as other,
        pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer"),
    ):
        shake_hands(trusting(str(bare.file)), other.server_context(other.issue(NAME)))
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(trusting(), bare.server_context(bare.issue(NAME)))


def test_the_hint_on_a_failed_verification_depends_on_its_cause(bare: Authority) -> None:
    """Naming an authority does not help against a certificate that has expired, or is not for this name or use."""
    expired = bare.server_context(bare.issue(NAME, not_after=datetime(2020, 1, 1, tzinfo=UTC)))
    good = bare.server_context(bare.issue(NAME, "192.0.2.1"))
    for_clients = bare.server_context(bare.issue_for_clients(NAME))
    believing = trusting(str(bare.file))

    def hint(client: ssl.SSLContext, server: ssl.SSLContext, name: str = NAME) -> str:
        with pytest.raises(ssl.SSLCertVerificationError) as caught:
            shake_hands(client, server, name)
        return distrust_hint(caught.value, "--ca")

    assert hint(believing, expired) == "; renew it, or set the clock"
    assert [hint(believing, good, name) for name in ("other.example", "192.0.2.2")] == ["", ""]
    not_for_servers = "; its key usages, or those of its authority, are not for servers"
    assert hint(believing, for_clients) == not_for_servers
    with closing(bare_authority(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]))) as of_clients:
        issued = of_clients.server_context(of_clients.issue(NAME))
        assert hint(trusting(str(of_clients.file)), issued) == not_for_servers
    assert hint(trusting(), good) == "; if its authority is one of your own, name it (--ca)"


def test_trusting_authorities_leaves_no_descriptor_open(bare: Authority) -> None:
    trusting(str(bare.file))

    assert not [name for name in open_files() if name.startswith("/memfd:")]


def test_an_error_that_says_nothing_about_the_scheme_has_no_hint_at_it(bare: Authority) -> None:
    with pytest.raises(ssl.SSLCertVerificationError) as caught:
        shake_hands(trusting(), bare.server_context(bare.issue(NAME)))

    assert [scheme_hint(error) for error in (caught.value, TimeoutError(), ConnectionResetError())] == ["", "", ""]
