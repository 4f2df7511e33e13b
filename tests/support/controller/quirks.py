"""Ways in which one firmware differs from another; all off by default, and changeable while the simulator runs."""

from enum import StrEnum
from typing import Literal

import msgspec


class PutRefusal(StrEnum):
    NONE = "none"
    EXISTS = "exists"
    """400 StaticDnsRecordAlreadyExists, even for an unchanged record."""
    NOT_ALLOWED = "not_allowed"
    """405 with an HTML page."""


class ExpiredAnswer(StrEnum):
    """What a call with an expired session gets."""

    UNAUTHORIZED = "unauthorized"
    INVALID_CSRF = "invalid_csrf"
    OBJECT = "object"
    """Status 200 and an object, where a listing would be an array."""


class Quirks(msgspec.Struct, forbid_unknown_fields=True):
    put_refusal: PutRefusal = PutRefusal.NONE
    """v2 only."""
    refuses_v2_create: bool = False
    accepts_cname_overlap: bool = False
    """Old firmware: a second CNAME, or a CNAME beside other rows, is stored, and breaks the resolver."""
    shared_bucket_ids: bool = False
    """The integration API lists all rows that were made through v2 under one id; deleting it deletes them all."""
    page_shifts: int = 0
    """How many more times rows move between the pages of an integration listing while it is being read."""
    max_page_rows: int = 200
    """Of the integration API; a page has no more rows, whatever limit it is asked for."""
    rounds_offsets: Literal["", "down", "up"] = ""
    """The integration API counts in whole pages: it begins with the first row of one, whatever row it is asked for."""
    tells_asked_offset: bool = True
    """Then, too, it says the offset that it was asked for."""
    refuses_odd_offsets: bool = False
    """The integration API takes the offsets of whole pages only."""
    lists_derived: bool = True
    """Otherwise the integration API leaves out the names of devices and clients, as v2 always does."""
    expired_answer: ExpiredAnswer = ExpiredAnswer.UNAUTHORIZED
    tells_csrf_token: bool = True
    """Otherwise it stands in the session's cookie alone, and is always the same."""
    welcomes_strangers: bool = False
    """Who is not logged in gets a new CSRF token and a new cookie of a balancer, each time."""
    max_key_characters: int = 256
    """v2; 128 in older releases."""
