"""What every process of Python tells of itself."""

from tools.dashboards.panels import Query, Row, graph
from tools.dashboards.queries import series


def process() -> Row:
    return Row(
        title="Process",
        panels=[
            graph(
                "CPU",
                "Of one core.",
                Query(f"rate({series('process_cpu_seconds_total')}[$__rate_interval])", "{{instance}}"),
                unit="percentunit",
                width=12,
            ),
            graph(
                "Memory",
                "Resident.",
                Query(series("process_resident_memory_bytes"), "{{instance}}"),
                unit="bytes",
                width=12,
            ),
        ],
    )
