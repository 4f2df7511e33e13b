"""What every Python process reports about itself."""

from tools.dashboards.panels import Query, Row, graph
from tools.dashboards.queries import PROCESS, WINDOW, series


def process(known_by: str) -> Row:
    """`known_by`: a metric that every daemon of this kind has; other processes report the same about themselves."""
    of_daemon = f"and on ({PROCESS}) {series(known_by)}"
    return Row(
        title="Process",
        panels=[
            graph(
                "CPU",
                "Of one core.",
                Query(f"rate({series('process_cpu_seconds_total')}{WINDOW}) {of_daemon}", "{{instance}}"),
                unit="percentunit",
                width=12,
            ),
            graph(
                "Memory",
                "Resident.",
                Query(f"{series('process_resident_memory_bytes')} {of_daemon}", "{{instance}}"),
                unit="bytes",
                width=12,
            ),
        ],
    )
