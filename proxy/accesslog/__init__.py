"""The access log: one line for each exchange that has ended, formatted and written outside the loop's thread.

    access_log = AccessLogWriter(loop, stats, settings)
    if access_log.wants(status_code, has_failed):
        access_log.write(record)

`wants` decides whether there is a line (all, a sample, errors only), `write` appends the record to a list; a separate
thread formats and writes batches of records. A log that cannot keep up drops records and counts them: traffic never
waits for it.
"""

from proxy.accesslog.settings import AccessLogSettings

__all__ = ["AccessLogSettings"]
