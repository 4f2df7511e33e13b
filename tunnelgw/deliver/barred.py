"""A target that cannot be served for want of something: it says so instead, as any other failure is said."""

import math

from tunnelgw.deliver.courier import Parcel, Undelivered
from tunnelgw.deliver.receipts import Remark


class BarredTarget:
    """Until its credentials change, and another target takes its place."""

    look_soon_s = math.inf

    def __init__(self, name: str, problem: str, *, is_credential_problem: bool = True) -> None:
        self.name = name
        self._problem = problem
        self._is_credential_problem = is_credential_problem

    def deliver(self, parcel: Parcel) -> tuple[Remark, ...]:  # noqa: ARG002
        raise Undelivered(self._problem, is_refusal=True, is_credential_problem=self._is_credential_problem)

    def close(self) -> None:
        """Nothing is open."""
