"""A site of the controller: its three names and its records."""

from tests.support.controller.store import RecordStore


class Site:
    def __init__(self, reference: str, uuid: str, name: str, store: RecordStore) -> None:
        self.reference = reference
        """Internal reference, used in v2 paths."""
        self.uuid = uuid
        """Used in integration paths."""
        self.name = name
        self.store = store

    def as_json(self) -> dict[str, str]:
        return {"id": self.uuid, "internalReference": self.reference, "name": self.name}


def site_uuid(number: int) -> str:
    """The identifier of the site with this number, counted from 0."""
    return f"88f7af54-98f8-306a-a1c7-{number + 1:012x}"
