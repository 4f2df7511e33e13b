"""The v2 "static-dns" API of one site: each method is one call, body in, response out."""

from tests.support.controller.answers import JSON, METHOD_NOT_ALLOWED_PAGE, Answer, v2_error
from tests.support.controller.quirks import PutRefusal, Quirks
from tests.support.controller.rows import Api, Draft, Origin
from tests.support.controller.store import Conflict, ConflictError, RecordStore, UnknownRowError, encode_v2
from tests.support.controller.v2rules import INVALID_PARAMETERS, Refused, decode

ALREADY_EXISTS = "api.err.StaticDnsRecordAlreadyExists"
NOT_FOUND = "api.err.StaticDnsRecordNotFound"
CNAME_OVERLAP = "api.err.StaticDnsCnameAliasOverlapsWithOtherRecords"
DEVICE_OVERLAP = "api.err.StaticDnsOverlapsWithDeviceLocalDns"

_CODES = {
    Conflict.EXISTS: ALREADY_EXISTS,
    Conflict.CNAME_OVERLAP: CNAME_OVERLAP,
    Conflict.DEVICE_OVERLAP: DEVICE_OVERLAP,
}


class V2Api:
    def __init__(self, quirks: Quirks) -> None:
        self._quirks = quirks

    def list_all(self, store: RecordStore) -> Answer:
        return Answer(200, store.v2_listing(), JSON)

    def create(self, store: RecordStore, body: bytes) -> Answer:
        if self._quirks.refuses_v2_create:
            return v2_error(400, INVALID_PARAMETERS, "Record cannot be created")
        try:
            row = store.create(self._draft(body), Api.V2)
        except (Refused, ConflictError) as error:
            return _refusal(error)
        return Answer(200, encode_v2(row), JSON)

    def update(self, store: RecordStore, row_id: str, body: bytes) -> Answer:
        if self._quirks.put_refusal is PutRefusal.NOT_ALLOWED:
            return METHOD_NOT_ALLOWED_PAGE
        if _hidden(store, row_id):
            return _unknown(row_id)
        if self._quirks.put_refusal is PutRefusal.EXISTS:
            return v2_error(400, ALREADY_EXISTS, Conflict.EXISTS.value)
        try:
            row = store.update(row_id, self._draft(body))
        except (Refused, ConflictError) as error:
            return _refusal(error)
        except UnknownRowError:
            return _unknown(row_id)
        return Answer(200, encode_v2(row), JSON)

    def delete(self, store: RecordStore, row_id: str) -> Answer:
        if _hidden(store, row_id):
            return _unknown(row_id)
        try:
            store.delete(row_id)
        except UnknownRowError:
            return _unknown(row_id)
        return Answer(200)

    def _draft(self, body: bytes) -> Draft:
        return decode(body, self._quirks.max_key_characters)


def _hidden(store: RecordStore, row_id: str) -> bool:
    """Whether v2 hides this row: it shows only user-defined ones."""
    row = store.find(row_id)
    return row is None or row.origin is not Origin.USER_DEFINED


def _unknown(row_id: str) -> Answer:
    return v2_error(404, NOT_FOUND, f"Static DNS record {row_id} not found")


def _refusal(error: Refused | ConflictError) -> Answer:
    if isinstance(error, Refused):
        return v2_error(400, error.code, error.message, error.fields)
    return v2_error(400, _CODES[error.conflict], error.conflict.value)
