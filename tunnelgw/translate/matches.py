"""Translates matches of HTTPRoute and GRPCRoute into matches of the document.

A match that the proxy cannot express is left out, with a remark, and never widened: a rule whose matches are all left
out matches nothing, although a rule written without matches matches everything.
"""

from collections.abc import Iterable

from proxy.document import UNSET, GrpcMethodMatch, HeaderMatch, Match
from tunnelgw.model.routes import GrpcMatch, GrpcRule, HttpMatch, Rule
from tunnelgw.translate.parts import carry
from tunnelgw.translate.remarks import Remarks


def matches_of(rule: Rule, remarks: Remarks) -> tuple[Match, ...]:
    if isinstance(rule, GrpcRule):
        carried: Iterable[Match | None] = (
            _grpc(match, f"matches[{place}]", remarks) for place, match in enumerate(rule.matches)
        )
    else:
        carried = (_http(match, f"matches[{place}]", remarks) for place, match in enumerate(rule.matches))
    return tuple(match for match in carried if match is not None)


def _http(match: HttpMatch, at: str, remarks: Remarks) -> Match | None:
    return carry(match, Match, at, remarks)


def _grpc(match: GrpcMatch, at: str, remarks: Remarks) -> Match | None:
    headers = [
        carry(header, HeaderMatch, f"{at}.headers[{place}]", remarks) for place, header in enumerate(match.headers)
    ]
    call = carry(match.method, GrpcMethodMatch, f"{at}.method", remarks) if match.method else UNSET
    known = tuple(header for header in headers if header is not None)
    if call is None or len(known) < len(headers):
        return None
    return Match(grpc=call, headers=known)
