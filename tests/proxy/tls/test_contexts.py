"""What connections of either side never do, whatever the OpenSSL of a host allows by itself."""

import ssl

import pytest

from proxy.tls.contexts import make_context


@pytest.mark.parametrize("protocol", [ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT])
def test_neither_old_versions_nor_renegotiation_nor_compression_are_offered(protocol: ssl._SSLMethod) -> None:
    context = make_context(protocol, ["h2"])

    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.options & ssl.OP_NO_COMPRESSION
