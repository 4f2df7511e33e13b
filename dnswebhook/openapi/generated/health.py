"""Structs of openapi/health.yaml; made by tools/generate.py, do not edit."""

from typing import Annotated

from msgspec import Meta, Struct


class Health(Struct, frozen=True, kw_only=True):
    status: Annotated[str, Meta(description="`ok`, or what is wrong in one word.")]
    message: Annotated[str, Meta(description="A fixed text; details are in the log.")]
