"""The provider's responses: one envelope for everything, with its error codes."""

from __future__ import annotations

from typing import Any

from tests.support.controller.answers import Answer, json_answer


def success(result: Any, result_info: dict[str, int] | None = None) -> Answer:
    """A successful response. As at the provider, `messages` contains the code that elsewhere is an error."""
    messages = [{"code": 10000, "message": "This API call was valid", "type": None}]
    envelope: dict[str, Any] = {"success": True, "errors": [], "messages": messages, "result": result}
    if result_info is not None:
        envelope["result_info"] = result_info
    return json_answer(200, envelope).with_headers(("cf-ray", "8f0000000000-SIM"))


def failure(status: int, code: int, message: str, *chain: tuple[int, str]) -> Answer:
    error: dict[str, Any] = {"code": code, "message": message}
    if chain:
        error["error_chain"] = [{"code": link, "message": text} for link, text in chain]
    envelope = {"success": False, "errors": [error], "messages": [], "result": None}
    return json_answer(status, envelope).with_headers(("cf-ray", "8f0000000000-SIM"))


BAD_TOKEN = failure(401, 10000, "Authentication error")
NO_PERMISSION = failure(403, 10000, "Authentication error")
MALFORMED_HEADER = failure(400, 6003, "Invalid request headers", (6111, "Invalid format for Authorization header"))
MALFORMED_ID = failure(
    400, 7003, "Could not route to the resource, perhaps your object identifier is invalid?", (7000, "No route")
)
NO_LISTING = failure(400, 1001, "List accounts endpoint does not support account owned tokens.")
UNKNOWN_TUNNEL = failure(404, 1003, "tunnel not found")
NOT_JSON = failure(400, 1030, "request body is not valid JSON")


def bad_configuration(reason: str) -> Answer:
    return failure(400, 1056, f"Bad Configuration: {reason}")
