"""Settings of a proxy, from the parameters of a class or a Gateway into its document, which judges them."""

import msgspec

from proxy import document
from tunnelgw.model.own import ProxySettings


def document_settings(wanted: ProxySettings | None) -> document.Settings:
    """The settings, without listeners. Raises DocumentError."""
    # Both have the same names, so what one says the other reads.
    return document.settings_of(document.decode(msgspec.json.encode(wanted or ProxySettings())))
