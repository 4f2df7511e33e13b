"""What client and server contexts never allow, whatever the defaults of the host's OpenSSL."""

import ssl

import pytest

from proxy.tls.contexts import UnusableTLS, load_authorities, make_context
from tests.support.edge.authority import EdgeAuthority


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


@pytest.mark.parametrize("ca", ["", "# Főtanúsítvány\n", "-----BEGIN CERTIFICATE-----\nő\n-----END CERTIFICATE-----\n"])
def test_a_ca_bundle_without_a_certificate_is_refused(ca: str) -> None:
    context = make_context(ssl.PROTOCOL_TLS_CLIENT, ["h2"])

    with pytest.raises(UnusableTLS, match="want certificates in PEM"):
        load_authorities(context, ca, "ca")
