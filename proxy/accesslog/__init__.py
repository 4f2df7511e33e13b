"""The access log: one line for an exchange that has ended, made and written off the loop's thread.

    access_log = AccessLogWriter(loop, stats, settings)
    if access_log.wants(status_code):
        access_log.write(record)

`wants` judges whether there is to be a line (all, a sample, errors only), `write` appends its record to a list; batches
of records are made into lines and written by a thread of their own. A log that cannot keep up drops records and counts
them: traffic never waits for it.
"""

from proxy.accesslog.settings import AccessLogSettings

__all__ = ["AccessLogSettings"]
