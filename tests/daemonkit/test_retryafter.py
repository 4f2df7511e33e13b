import time
from email.utils import formatdate

import pytest

from daemonkit.retryafter import retry_after_s

DATE = "Sun, 06 Nov 1994 08:49:37 GMT"


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("0", 0.0),
        (" 17 ", 17.0),
        ("9" * 400, 999_999_999.0),
        ("Sun, 06 Nov 1994 08:49:47 GMT", 10.0),
        ("Sun, 06 Nov 1994 08:49:47 -0000", 10.0),
        ("Sun, 06 Nov 1994 09:49:47 +0100", 10.0),
        ("Sun, 06 Nov 1994 08:49:27 GMT", 0.0),
        ("Sunday, 06-Nov-94 08:50:37 GMT", 60.0),
        ("", None),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("\xb2", None),
    ],
)
def test_both_forms_of_retry_after_are_relative_to_the_senders_date(header: str, seconds: float | None) -> None:
    assert retry_after_s({"Retry-After": header, "Date": DATE}) == seconds


def test_a_retry_after_date_without_a_date_field_is_relative_to_our_clock() -> None:
    assert retry_after_s({"Retry-After": DATE}) == 0.0
    assert 3590 < (retry_after_s({"Retry-After": formatdate(time.time() + 3600, usegmt=True)}) or 0.0) <= 3600
