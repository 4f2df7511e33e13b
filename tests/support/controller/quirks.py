"""Differences between firmware versions; all off by default, and changeable while the simulator runs."""

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
    """The response to a call with an expired session."""

    UNAUTHORIZED = "unauthorized"
    INVALID_CSRF = "invalid_csrf"
    OBJECT = "object"
    """Status 200 and an object, where a listing would be an array."""
    REDIRECT = "redirect"
    """Status 302, to the page where people log in."""
    PAGE = "page"
    """Status 200 and that page."""


class Quirks(msgspec.Struct, forbid_unknown_fields=True):
    put_refusal: PutRefusal = PutRefusal.NONE
    """v2 only."""
    refuses_v2_create: bool = False
    accepts_cname_overlap: bool = False
    """Old firmware: a second CNAME, or a CNAME beside other rows, is stored, and breaks the resolver."""
    shared_bucket_ids: bool = False
    """The integration API lists all rows created through v2 under one id; deleting it deletes them all."""
    page_shifts: int = 0
    """How many more times rows move between the pages of an integration listing while it is being read."""
    max_page_rows: int = 200
    """Most rows per page of the integration API, whatever limit is requested."""
    rounds_offsets: Literal["", "down", "up"] = ""
    """The integration API rounds offsets to whole pages, in this direction."""
    tells_asked_offset: bool = True
    """Whether it then reports the offset that was requested."""
    refuses_odd_offsets: bool = False
    """The integration API accepts only offsets of whole pages."""
    lists_derived: bool = True
    """If false, the integration API leaves out the names of devices and clients, as v2 always does."""
    expired_answer: ExpiredAnswer = ExpiredAnswer.UNAUTHORIZED
    treats_strangers_as_expired: bool = False
    """A client that has never logged in gets `expired_answer`, too."""
    tells_csrf_token: bool = True
    """If false, the token is only in the session's cookie, and never changes."""
    welcomes_strangers: bool = False
    """A client that is not logged in gets a new CSRF token and a new load balancer cookie each time."""
    max_key_characters: int = 256
    """For v2; 128 in older releases."""
