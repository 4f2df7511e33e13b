"""Connect's conformance suite through the proxy: gRPC, gRPC-Web and Connect of the Go libraries, every kind of call.

The suite's clients check what comes back, its server what came in, as if there were no proxy between them: fields,
trailers, compression, errors, deadlines and cancellation.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.gateway import Gateway, route_to
from tests.support.ports import ReservedPort
from tests.support.programs import built_program, run

# JSON instead of Protocol Buffers makes no difference to a proxy.
FEATURES = """\
features:
  versions: [HTTP_VERSION_1, HTTP_VERSION_2]
  codecs: [CODEC_PROTO]
  compressions: [COMPRESSION_IDENTITY, COMPRESSION_GZIP]
  supportsH2c: true
  supportsTrailers: true
  supportsConnectGet: true
  supportsMessageReceiveLimit: true
  supportsHalfDuplexBidiOverHttp1: true
  supportsTlsClientCerts: false
"""
TLS, NO_TLS = "  supportsTls: true\n", "  supportsTls: false\n"
OVER_HTTP_1 = """\
  protocols: [PROTOCOL_CONNECT, PROTOCOL_GRPC_WEB]
  streamTypes:
  - STREAM_TYPE_UNARY
  - STREAM_TYPE_CLIENT_STREAM
  - STREAM_TYPE_SERVER_STREAM
  - STREAM_TYPE_HALF_DUPLEX_BIDI_STREAM
"""
"""gRPC and full-duplex streams require HTTP/2."""


@pytest.mark.parametrize(
    ("gateway", "http_version", "features", "cases"),
    [
        pytest.param("listener", 2, FEATURES + TLS, 2_184, id="listener-h2c"),
        pytest.param("listener", 1, FEATURES + TLS + OVER_HTTP_1, 1_532, id="listener-http"),
        pytest.param("tunnel", 2, FEATURES + NO_TLS, 1_182, id="tunnel-h2c"),
    ],
    indirect=["gateway"],
)
def test_every_case_passes(gateway: Gateway, tmp_path: Path, http_version: int, features: str, cases: int) -> None:
    suite = built_program("connect-conformance")
    (tmp_path / "features.yaml").write_text(features)
    with ReservedPort() as port:
        gateway.serve(route_to(port.address, protocol="h2c" if http_version == 2 else "http"))
        server = [str(suite / "referenceserver"), str(port.number), str(http_version)]
        doors = [str(gateway.clear[1]), str(gateway.tls[1]), str(gateway.doors.authority.file)]
        behind_it = [sys.executable, "-m", "tests.support.rpcserver", *server, *doors]

        done = run(asking(suite / "connectconformance", tmp_path / "features.yaml", behind_it), timeout_s=400)

    report = done.stdout.decode()
    assert re.search(rf"^{cases} passed, 0 failed$", report, re.MULTILINE), report[-8_000:] + done.stderr.decode()
    assert 0 == done.returncode


def asking(program: Path, features: Path, server: Sequence[str]) -> list[str]:
    # One at a time, since there is one proxy for all.
    return [str(program), "--mode", "server", "--max-servers", "1", "--conf", str(features), "--", *server]
