"""How structs of Kubernetes objects are decoded: snake_case here, camelCase in JSON, frozen, unknown fields ignored."""

import msgspec


class Part(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """A part of an object, or a whole one. Parts form no reference cycles, so the collector need not track them."""
