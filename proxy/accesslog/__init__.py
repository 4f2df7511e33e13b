"""The access log: one line for a finished exchange, kept off the loop's thread.

    if access_log.wants(status_code):
        access_log.write(Record(...))

`wants` says whether the line would be written at all (level, sample), so that a record is only made when it is. `write`
appends to a list; batches of them are made into lines and written by a thread of their own (`writer`). A log that
cannot keep up drops records and counts them: traffic never waits for it.
"""

from proxy.accesslog.record import AccessLog, Record
from proxy.accesslog.settings import AccessLogSettings

__all__ = ["AccessLog", "AccessLogSettings", "Record"]
