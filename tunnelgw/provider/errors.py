"""What can go wrong between the controller and the provider's API, by what is to be done about it."""


class ProviderError(Exception):
    """The message says which call, what came back, and what to do. Never carries the token."""

    retry_after_s: float = 0.0
    """At least this long nothing should be asked again."""
    ray = ""
    """By which the provider's support finds the call. Not in the message, which stays while the problem does."""
    is_refusal = False
    """The same call will be refused again until somebody changes something."""


class ProviderUnreachable(ProviderError):
    """No answer, or none that means anything: network, timeout, 5xx, garbage. The call may have been carried out."""

    has_answered = False
    """With a 5xx: the same call may come to more at once."""


class NameUnknown(ProviderUnreachable):
    """The provider's host name does not resolve."""


class OldAnswer(ProviderUnreachable):
    """Of before something that we know of."""

    retry_after_s = 5.0


class AuthenticationFailed(ProviderError):
    """401 or 403: the token is wrong, expired, or lacks the permission."""

    is_refusal = True


class NotThere(ProviderError):
    """The tunnel or account is unknown, deleted, or not the token's."""

    is_refusal = True


class Refused(ProviderError):
    """The provider does not take what we sent."""

    is_refusal = True


class RateLimited(ProviderError):
    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
