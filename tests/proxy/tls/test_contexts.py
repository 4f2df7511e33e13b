"""What client and server contexts never allow, whatever the defaults of the host's OpenSSL."""

import ssl
import threading

import pytest

from proxy.tls.contexts import UnusableTLS, load_authorities, make_context
from tests.support.edge.authority import EdgeAuthority
from tests.support.limits import out_of_descriptors

WAIT_S = 30.0


@pytest.mark.parametrize("protocol", [ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT])
def test_old_tls_versions_renegotiation_and_compression_are_disabled(protocol: ssl._SSLMethod) -> None:
    context = make_context(protocol, ["h2"])

    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.options & ssl.OP_NO_COMPRESSION


def test_a_bundle_of_authorities_may_have_comments_in_any_language() -> None:
    context = make_context(ssl.PROTOCOL_TLS_CLIENT, ["h2"])

    load_authorities(context, "# Főtanúsítvány\n" + EdgeAuthority.make().pem.decode(), "ca")

    assert context.cert_store_stats()["x509_ca"] == 1


def test_other_threads_run_while_a_bundle_is_read() -> None:
    """Backends' bundles are read by a thread so that requests need not wait for it."""
    context = make_context(ssl.PROTOCOL_TLS_CLIENT, ["h2"])
    bundle = EdgeAuthority.make().pem.decode() * 1000
    begun, ended = threading.Event(), threading.Event()

    def read() -> None:
        begun.set()
        load_authorities(context, bundle, "ca")
        ended.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    assert begun.wait(WAIT_S)
    turns = 0
    while not ended.wait(0.0005):
        turns += 1
        assert reader.is_alive() or ended.is_set()
    reader.join(WAIT_S)

    assert turns > 5


def test_a_bundle_is_read_even_if_no_descriptor_is_left() -> None:
    context = make_context(ssl.PROTOCOL_TLS_CLIENT, ["h2"])
    bundle = EdgeAuthority.make().pem.decode()

    with out_of_descriptors():
        load_authorities(context, bundle, "ca")

    assert context.cert_store_stats()["x509_ca"] == 1


@pytest.mark.parametrize("ca", ["", "# Főtanúsítvány\n", "-----BEGIN CERTIFICATE-----\nő\n-----END CERTIFICATE-----\n"])
def test_a_ca_bundle_without_a_certificate_is_refused(ca: str) -> None:
    context = make_context(ssl.PROTOCOL_TLS_CLIENT, ["h2"])

    with pytest.raises(UnusableTLS, match="want certificates in PEM"):
        load_authorities(context, ca, "ca")
