"""Takes the place of a target that cannot be served because something is missing, and reports that as a failure."""

import math

from tunnelgw.deliver.courier import Parcel, Undelivered
from tunnelgw.deliver.receipts import Remark


class BarredTarget:
    """Used until the target's key changes, for example its credentials; then another target takes its place."""

    look_soon_s = math.inf

    def __init__(self, name: str, problem: str, *, is_credential_problem: bool = True) -> None:
        self.name = name
        self._problem = problem
        self._is_credential_problem = is_credential_problem

    def deliver(self, parcel: Parcel) -> tuple[Remark, ...]:  # noqa: ARG002
        raise Undelivered(self._problem, is_refusal=True, is_credential_problem=self._is_credential_problem)

    def close(self) -> None:
        """Nothing is open."""
