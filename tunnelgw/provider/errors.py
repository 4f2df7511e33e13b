"""What can go wrong between the controller and the provider's API, classified by what must be done about it."""


class ProviderError(Exception):
    """The message says which call failed, what came back, and what to do. It never contains the token."""

    retry_after_s: float = 0.0
    """How long to wait at least before the next call."""
    ray = ""
    """The id by which the provider's support finds the call. Not in the message, which stays the same as long as the
    problem does."""
    is_refusal = False
    """The same call will be refused again until somebody changes something."""


class ProviderUnreachable(ProviderError):
    """No answer, or no meaningful one: network, timeout, 5xx, garbage. The call may have been carried out."""

    has_answered = False
    """With a 5xx: the same call may succeed at once."""


class NameUnknown(ProviderUnreachable):
    """The provider's host name does not resolve, or that of the proxy before it."""


class OldAnswer(ProviderUnreachable):
    """The answer is older than something that we know already."""

    retry_after_s = 5.0


class AuthenticationFailed(ProviderError):
    """401 or 403: the token is wrong, expired, or lacks the permission."""

    is_refusal = True


class NotThere(ProviderError):
    """The tunnel or account is unknown, deleted, or not the token's."""

    is_refusal = True


class Refused(ProviderError):
    """The provider does not accept what we sent."""

    is_refusal = True


class RateLimited(ProviderError):
    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
