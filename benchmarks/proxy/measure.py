"""The measurements: each function makes the rows of one table, all candidates of a case one after another."""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from benchmarks.comparison import Row
from benchmarks.proxy import load, programs
from benchmarks.proxy.programs import Certificate, Program, Tunnelgw


class Plan(msgspec.Struct, frozen=True):
    requests: int
    """Per saturating run."""
    rate_s: float
    """Length of a run at a fixed rate."""
    bulks: int
    """How many downloads, and how many uploads, of 1 GiB, one after another."""
    repeats: int
    """Number of runs, of which the median counts."""
    changes: int
    """Changes of one route."""
    routes: tuple[int, ...] = (1, 100, 10_000)
    rate: int = 2000
    in_flight: int = 64


class Shape(msgspec.Struct, frozen=True):
    """The client's protocol, the backend's protocol, and whether the client uses TLS."""

    client: str
    backend: str
    is_tls: bool

    def __str__(self) -> str:
        return f"{self.client} -> {self.backend}{', TLS' if self.is_tls else ''}"


SHAPES = tuple(
    Shape(client, backend, is_tls)
    for client, backend in (("h1", "h1"), ("h2", "h1"), ("h2", "h2c"))
    for is_tls in (False, True)
)


class Bench:
    def __init__(self, plan: Plan, directory: Path, peers: tuple[str, ...]) -> None:
        self._plan = plan
        self._directory = directory
        self._peers = peers
        self._certificate = Certificate(directory)

    # -- candidates --------------------------------------------------------------------------------------------------

    @contextmanager
    def _backend(self, shape: Shape) -> Iterator[str]:
        make = programs.h2c_backend if shape.backend == "h2c" else programs.http_backend
        with make(self._directory) as backend:
            yield f"127.0.0.1:{backend.port}"

    def _candidates(self, shape: Shape, workers: int, backend: str) -> Iterator[Callable[[], Program]]:
        certificate = self._certificate if shape.is_tls else None
        protocol = "h2c" if shape.backend == "h2c" else "http"

        def ours() -> Program:
            port = programs.free_port()
            document = programs.document(port, backend, protocol=protocol, certificate=certificate)
            return Tunnelgw(workers, document, self._directory)

        yield ours
        if "nghttpx" in self._peers:
            is_h2_backend = shape.backend == "h2c"
            yield lambda: programs.nghttpx(
                workers, backend, self._directory, is_h2_backend=is_h2_backend, certificate=certificate
            )
        # Debian's nginx speaks HTTP/2 to clients over TLS only (beside HTTP/1.1), and never to backends.
        if "nginx" in self._peers and shape.backend == "h1" and (shape.client == "h1" or shape.is_tls):
            yield lambda: programs.nginx(workers, backend, self._directory, certificate)

    def _url(self, shape: Shape, program: Program, path: str = "/") -> str:
        return f"{'https' if shape.is_tls else 'http'}://127.0.0.1:{program.port}{path}"

    def _saturating(self, shape: Shape, requests: int) -> load.Load:
        in_flight = self._plan.in_flight
        if shape.client == "h1":
            return load.Load(protocol="h1", connections=in_flight, streams=1, requests=requests)
        return load.Load(protocol="h2", connections=4, streams=in_flight // 4, requests=requests)

    # -- tables ------------------------------------------------------------------------------------------------------

    def small_requests(self, shape: Shape, workers: int) -> list[Row]:
        """Saturated, then at a fixed rate."""
        rows = []
        with self._backend(shape) as backend:
            for make in self._candidates(shape, workers, backend):
                with make() as program:
                    rows.append(self._small(shape, workers, program))
        return rows

    def _small(self, shape: Shape, workers: int, program: Program) -> Row:
        plan = self._plan
        url = self._url(shape, program)
        idle_bytes = program.rss_bytes()
        load.run(self._saturating(shape, max(1000, plan.requests // 10)), url)
        runs = [self._costs(program, self._saturating(shape, plan.requests), url) for _ in range(plan.repeats)]
        cpu_us, per_s, failed = sorted(runs)[len(runs) // 2]
        connections = 16 if shape.client == "h1" else 4
        steady = load.Load(
            protocol=shape.client, connections=connections, streams=8, duration_s=plan.rate_s, rate=plan.rate
        )
        cpu_before_s = program.cpu_s()
        seen = load.run(steady, url)
        return Row(
            f"{shape}, {workers} worker{'s' * (workers > 1)}",
            program.name,
            {
                "per_s": per_s,
                "cpu_us": cpu_us,
                "failed": failed + seen.failed,
                "steady_cpu_us": (program.cpu_s() - cpu_before_s) / max(1, seen.requests) * 1e6,
                "p50_ms": seen.quantile_ms(0.5),
                "p99_ms": seen.quantile_ms(0.99),
                "p999_ms": seen.quantile_ms(0.999),
                "idle_bytes": idle_bytes,
                "loaded_bytes": program.rss_bytes(),
            },
        )

    @staticmethod
    def _costs(program: Program, wanted: load.Load, url: str) -> tuple[float, float, int]:
        """CPU microseconds per request, requests per second, number of failed requests."""
        before_s = program.cpu_s()
        seen = load.run(wanted, url)
        return (program.cpu_s() - before_s) / max(1, seen.requests) * 1e6, seen.per_s, seen.failed

    def bulk(self, client: str) -> list[Row]:
        """1 GiB down and up, on one stream, without TLS."""
        shape = Shape(client, "h1", False)
        rows: list[Row] = []
        upload = self._directory / "upload"
        with upload.open("wb") as file:
            file.truncate(programs.BULK_BYTES)
        with ExitStack() as stack:
            down = stack.enter_context(programs.http_backend(self._directory))
            up_port = stack.enter_context(programs.sink())
            for title, address, path, body in (
                ("down", f"127.0.0.1:{down.port}", "/bulk", None),
                ("up", f"127.0.0.1:{up_port}", "/", upload),
            ):
                for make in self._candidates(shape, 1, address):
                    with make() as program:
                        url = self._url(shape, program, path)
                        wanted = load.Load(
                            protocol=client, connections=1, streams=1, requests=self._plan.bulks, upload=body
                        )
                        rows.append(self._bulk(f"{shape}, 1 GiB {title}", program, wanted, url))
        return rows

    @staticmethod
    def _bulk(case: str, program: Program, wanted: load.Load, url: str) -> Row:
        before_bytes, before_s = program.rss_bytes(), program.cpu_s()
        program.forget_peak_rss()
        seen = load.run(wanted, url)
        gigabytes = seen.requests * programs.BULK_BYTES / 1e9
        cpu_s = program.cpu_s() - before_s
        return Row(
            case,
            program.name,
            {
                "mb_per_s": gigabytes * 1000 / seen.wall_s,
                "cpu_s_per_gb": cpu_s / gigabytes,
                "mb_per_core_s": gigabytes * 1000 / max(cpu_s, 0.01),
                "growth_bytes": program.peak_rss_bytes() - before_bytes,
                "failed": seen.failed,
            },
        )

    def routes(self) -> list[Row]:
        """The cost of a request by the number of routes in the document; the last route is the one that is used."""
        shape = Shape("h2", "h1", False)
        rows = []
        with self._backend(shape) as backend:
            for count in self._plan.routes:
                port = programs.free_port()
                document = programs.document(port, backend, routes=count)
                with Tunnelgw(1, document, self._directory) as program:
                    url = self._url(shape, program)
                    load.run(self._saturating(shape, max(1000, self._plan.requests // 10)), url)
                    wanted = self._saturating(shape, self._plan.requests)
                    runs = sorted(self._costs(program, wanted, url) for _ in range(self._plan.repeats))
                    cpu_us, per_s, failed = runs[len(runs) // 2]
                    values = {"per_s": per_s, "cpu_us": cpu_us, "failed": failed, "rss_bytes": program.rss_bytes()}
                    rows.append(Row(f"{count:,} routes", program.name, values))
        return rows

    def swap(self) -> list[Row]:
        """Latencies at the fixed rate while nothing happens, and while 10,000 routes are replaced again and again."""
        shape = Shape("h2", "h1", False)
        plan = self._plan
        rows = []
        with self._backend(shape) as backend:
            port = programs.free_port()
            document = programs.document(port, backend, routes=10_000)
            with Tunnelgw(1, document, self._directory) as program:
                url = self._url(shape, program)
                steady = load.Load(connections=4, streams=8, duration_s=plan.rate_s, rate=plan.rate)
                load.run(steady, url)
                bodies = self._bodies(document)
                for case, is_swapping in (("steady", False), ("swapping", True)):
                    running = load.Running(steady, url)
                    took_s = self._swap(program, bodies, plan.rate_s) if is_swapping else [0.0]
                    seen = running.wait()
                    values = {
                        "p50_ms": seen.quantile_ms(0.5),
                        "p99_ms": seen.quantile_ms(0.99),
                        "p999_ms": seen.quantile_ms(0.999),
                        "failed": float(seen.failed),
                        "swaps": float(len(took_s) if is_swapping else 0),
                        "swap_ms": sorted(took_s)[len(took_s) // 2] * 1000,
                        "rss_bytes": program.rss_bytes(),
                    }
                    rows.append(Row(f"10,000 routes, {case}", program.name, values))
        return rows

    @staticmethod
    def _bodies(document: dict[str, object]) -> tuple[bytes, bytes]:
        """Two documents in which every route differs, encoded beforehand: that takes the time of several requests."""
        routes = document["routes"]
        assert isinstance(routes, list)
        bodies = []
        for stamp in ("blue", "green"):
            for route in routes[:-1]:
                headers = route["rules"][0]["filters"]["requestHeaderModifier"]["set"]
                headers[0]["value"] = stamp
            bodies.append(msgspec.json.encode(document))
        return bodies[0], bodies[1]

    @staticmethod
    def _swap(program: Tunnelgw, bodies: tuple[bytes, bytes], for_s: float) -> list[float]:
        took_s: list[float] = []
        end_s = time.perf_counter() + for_s * 0.9
        while time.perf_counter() < end_s:
            took_s.append(program.put(bodies[len(took_s) % 2]))
        return took_s


@contextmanager
def workplace() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="bench-proxy-") as directory:
        yield Path(directory)
