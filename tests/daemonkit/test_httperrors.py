"""The one shape of errors."""

import json

from werkzeug.exceptions import MethodNotAllowed, NotFound
from werkzeug.test import Client

from daemonkit.httperrors import category, error_body, error_response, from_http_exception


def test_a_category_is_the_phrase_of_the_status_code_in_lower_case() -> None:
    assert [category(code) for code in (400, 404, 431, 500, 502, 799)] == [
        "bad request",
        "not found",
        "request header too large",
        "internal error",
        "bad gateway",
        "error",
    ]


def test_the_body_is_one_json_object_and_a_newline() -> None:
    assert error_body(503, "busy") == b'{"error": "service unavailable", "message": "busy"}\n'
    assert json.loads(error_body(500, 'q"')) == {"error": "internal error", "message": 'q"'}


def test_an_error_response_may_have_further_header_fields() -> None:
    response = Client(error_response(503, "busy", headers=[("Retry-After", "3")])).get("/")

    assert (response.status_code, response.headers["Retry-After"]) == (503, "3")
    assert response.mimetype == "application/json"
    assert response.headers["Cache-Control"] == "no-store"


def test_a_werkzeug_exception_keeps_its_status_code_and_allow_field() -> None:
    refused = from_http_exception(MethodNotAllowed(["GET"]))

    assert (refused.status_code, refused.headers["Allow"]) == (405, "GET")
    body = from_http_exception(NotFound()).json
    assert body is not None
    assert body["error"] == "not found"
