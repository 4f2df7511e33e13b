"""One complete call to the controller: with credentials, repeated as `retry` allows, with typed failures.

A session that has ended is renewed once per call, and the call is then repeated with its whole body. A 401, a 403, or
a web server's page in place of the application's reply means that the controller did not act, so this is safe for a
POST too.
"""

from dnswebhook.deadline import Deadline
from dnswebhook.stores.unifi import replies
from dnswebhook.stores.unifi.credentials import Credentials, Ticket
from dnswebhook.stores.unifi.retry import RetryPolicy
from dnswebhook.stores.unifi.transport import Reply, Request, Transport

MAX_SENDINGS = 8
"""Per call: the first attempt, one after another thread's login, and one after our own. The others are for refusals of
a CSRF token that became outdated on the way, because parallel calls have received a newer one."""
MAX_OUTDATED = MAX_SENDINGS - 2
"""How many refusals may be due to an outdated token: each refusal may itself bring a new token or cookie."""


class Client:
    """Thread-safe."""

    def __init__(self, transport: Transport, credentials: Credentials, retry: RetryPolicy) -> None:
        self._transport = transport
        self._credentials = credentials
        self._retry = retry

    def call(self, request: Request, deadline: Deadline) -> Reply:
        """A reply with a success status; raises StoreError, or Unclear for a POST."""
        reply = self._authenticated(request, deadline)
        failure = replies.failure_of(reply)
        try:
            if failure is not None:
                raise failure
        finally:
            del failure  # it refers to this frame, with the reply, and the frame refers to it
        return reply

    def _authenticated(self, request: Request, deadline: Deadline) -> Reply:
        may_login = True
        for sending in range(1, MAX_SENDINGS + 1):
            ticket, reply = self._send(request, deadline)
            if not self._credentials.is_expired(ticket, reply):
                break
            if sending <= MAX_OUTDATED and self._credentials.is_outdated(ticket):
                continue
            if not may_login:
                break
            may_login = not self._credentials.renew(ticket, reply, deadline)
        return reply

    def _send(self, request: Request, deadline: Deadline) -> tuple[Ticket, Reply]:
        ticket = self._credentials.ticket(deadline)

        def exchange() -> Reply:
            reply = self._transport.exchange(request, ticket.headers, deadline)
            self._credentials.learn(ticket, reply)
            return reply

        return ticket, self._retry.send(request, exchange, deadline)
