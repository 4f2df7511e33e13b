"""What connections of either side never do, whatever the OpenSSL of a host allows by itself."""

import ssl

import pytest

from proxy.tls.contexts import UnusableTLS, load_authorities, make_context
from tests.support.edge.authority import EdgeAuthority


@pytest.mark.parametrize("protocol", [ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT])
def test_neither_old_versions_nor_renegotiation_nor_compression_are_offered(protocol: ssl._SSLMethod) -> None:
    context = make_context(protocol, ["h2"])

    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.options & ssl.OP_NO_COMPRESSION


def test_a_bundle_of_authorities_may_have_comments_in_any_language() -> None:
    context = make_context(ssl.PROTOCOL_TLS_CLIENT, ["h2"])

    load_authorities(context, "# Főtanúsítvány\n" + EdgeAuthority.make().pem.decode(), "ca")

    assert context.cert_store_stats()["x509_ca"] == 1


@pytest.mark.parametrize("ca", ["", "# Főtanúsítvány\n", "-----BEGIN CERTIFICATE-----\nő\n-----END CERTIFICATE-----\n"])
def test_a_text_without_a_certificate_makes_no_authorities(ca: str) -> None:
    context = make_context(ssl.PROTOCOL_TLS_CLIENT, ["h2"])

    with pytest.raises(UnusableTLS, match="want certificates in PEM"):
        load_authorities(context, ca, "ca")
