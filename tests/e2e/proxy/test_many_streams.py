"""nghttp and h2load: many streams and connections at once, against both HTTP/1.1 and HTTP/2 backends."""

import re
from collections.abc import Iterator

import pytest

from tests.e2e.proxy.doors import through_both_doors
from tests.support.gateway import Gateway, route_to
from tests.support.programs import program, run
from tests.support.recordingbackend import RecordingBackend
from tests.support.servers import Server, nghttpd, nginx

REQUESTS = 3000


@pytest.fixture(scope="module")
def h1_server() -> Iterator[Server]:
    with nginx() as server:
        (server.root / "file").write_bytes(b"x" * 3000)
        yield server


@pytest.fixture(scope="module")
def h2_server() -> Iterator[Server]:
    with nghttpd(None, "--max-concurrent-streams=50") as server:
        (server.root / "file").write_bytes(b"x" * 3000)
        yield server


each_way = pytest.mark.parametrize(
    ("gateway", "scheme"), [("listener", "http"), ("listener", "https"), ("tunnel", "http")], indirect=["gateway"]
)


@each_way
@pytest.mark.parametrize("protocol", ["http", "h2c"])
def test_every_one_of_many_concurrent_streams_is_answered(
    gateway: Gateway, h1_server: Server, h2_server: Server, scheme: str, protocol: str
) -> None:
    """With HTTP/2 behind, more streams than one connection of the backend allows."""
    server = h2_server if protocol == "h2c" else h1_server
    gateway.serve(route_to(server.address, protocol=protocol))

    url = gateway.url_of("/file", scheme=scheme)
    done = run([program("h2load", "nghttp2-client"), "-n", str(REQUESTS), "-c", "8", "-m", "64", url], timeout_s=60)

    report = done.stdout.decode()
    assert f"{REQUESTS} succeeded, 0 failed, 0 errored, 0 timeout" in report, report
    assert f"status codes: {REQUESTS} 2xx" in report


@each_way
def test_many_connections_of_http_1_1_are_answered(gateway: Gateway, h1_server: Server, scheme: str) -> None:
    gateway.serve(route_to(h1_server.address))

    url = gateway.url_of("/file", scheme=scheme)
    done = run([program("h2load", "nghttp2-client"), "--h1", "-n", str(REQUESTS), "-c", "100", url], timeout_s=60)

    assert f"{REQUESTS} succeeded, 0 failed, 0 errored, 0 timeout" in done.stdout.decode()


@through_both_doors
def test_uploads_on_many_streams_are_echoed(gateway: Gateway, tmp_path_factory: pytest.TempPathFactory) -> None:
    body = tmp_path_factory.mktemp("upload") / "body"
    body.write_bytes(b"u" * 200_000)
    with nghttpd(None, "--echo-upload") as server:
        gateway.serve(route_to(server.address, protocol="h2c"))

        command = [program("h2load", "nghttp2-client"), "-n", "100", "-c", "2", "-m", "16", "-d", str(body)]
        report = run([*command, gateway.url_of("/")], timeout_s=60).stdout.decode()

    assert "100 succeeded, 0 failed" in report, report
    found = re.search(r"\((\d+)\) data", report)
    assert found
    assert 100 * 200_000 <= int(found[1])


@through_both_doors
@pytest.mark.parametrize("size_bytes", [0, 1, 70_000, 2_000_000])
def test_nghttp_gets_bodies_and_trailers_from_an_http2_backend(gateway: Gateway, size_bytes: int) -> None:
    with nghttpd(None, "--trailer=x-sum: 17") as server:
        (server.root / "file").write_bytes(b"y" * size_bytes)
        gateway.serve(route_to(server.address, protocol="h2c"))

        url = gateway.url_of("/file")
        shown = run([program("nghttp", "nghttp2-client"), "--verbose", "--null-out", url]).stdout
        body = run([program("nghttp", "nghttp2-client"), url]).stdout

    assert b"x-sum: 17" in shown
    assert b"y" * size_bytes == body


def test_priorities_padding_and_continuation_frames_are_accepted(gateway: Gateway, backend: RecordingBackend) -> None:
    gateway.serve(route_to(backend.address))
    large = [f"--header=x-large-{number}: {'v' * 1500}" for number in range(20)]

    urls = [gateway.url_of("/file"), gateway.url_of("/file?2")]
    options = ["--stat", "--null-out", "--padding=200", "--weight=3", "--continuation", *large]
    done = run([program("nghttp", "nghttp2-client"), *options, *urls])

    assert 2 == len(re.findall(rb" 200 +\d", done.stdout)), done.stdout
