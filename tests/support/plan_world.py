"""A store made of a list of rows, on which a plan is executed step by step while every safety rule is checked."""

from collections.abc import Iterable

from dnswebhook.model import Record, RecordSpec
from dnswebhook.operations import Create, CreateTogether, Delete, Operation, Plan, Switch, Update


class World:
    """Rows by id. Raises AssertionError as soon as a write breaks a rule in a way that would harm a real appliance."""

    def __init__(self, rows: Iterable[Record]) -> None:
        self.rows = {row.id: row for row in rows}
        self.writes = 0
        self.names_ever_empty: set[str] = set()
        self._next_id = 1

    def play(self, plan: Plan) -> None:
        for strand in plan.strands:
            for step in strand.steps:
                assert all(index < strand.steps.index(step) for index in step.needs)
                self.perform(step.operation)

    def perform(self, operation: Operation) -> None:
        match operation:
            case Create(spec):
                self._create(spec)
            case CreateTogether(specs):
                for spec in specs:
                    self._create(spec)
            case Update(record, spec):
                assert self.rows[record.id] == record
                assert (record.name, record.type) == (spec.name, spec.type)
                assert record.is_enabled
                self.rows[record.id] = Record(record.id, spec.name, spec.type, spec.value, spec.ttl_s)
                self.writes += 1
            case Delete(record):
                self._delete(record)
            case Switch(remove, add):
                for record in remove:
                    self._delete(record)
                for spec in add:
                    self._create(spec)
        self.check()

    def live(self, name: str, record_type: str) -> set[str]:
        return {
            row.value for row in self.rows.values() if row.is_enabled and (row.name, row.type) == (name, record_type)
        }

    def check(self) -> None:
        """Check that a resolver would start."""
        for row in self.rows.values():
            if row.type == "CNAME" and row.is_enabled:
                others = [other for other in self.rows.values() if other.name == row.name and other.is_enabled]
                assert others == [row], f"a CNAME does not stand alone: {others}"
                assert row.name not in self._led_to(row.value), f"a CNAME leads back to its name: {row}"

    def _create(self, spec: RecordSpec) -> None:
        same = [
            row for row in self.rows.values() if (row.name, row.type, row.value) == (spec.name, spec.type, spec.value)
        ]
        assert not same, f"created twice: {spec}"
        self.rows[f"new-{self._next_id}"] = Record(f"new-{self._next_id}", spec.name, spec.type, spec.value, spec.ttl_s)
        self._next_id += 1
        self.writes += 1

    def _delete(self, record: Record) -> None:
        assert self.rows.pop(record.id) == record
        self.writes += 1
        if not any(row.is_enabled and row.name == record.name for row in self.rows.values()):
            self.names_ever_empty.add(record.name)

    def _led_to(self, name: str) -> list[str]:
        """The names that a resolver reaches from this one, which is the first."""
        targets = {row.name: row.value for row in self.rows.values() if row.type == "CNAME" and row.is_enabled}
        names = [name]
        while (target := targets.get(names[-1])) is not None and target not in names:
            names.append(target)
        return names
