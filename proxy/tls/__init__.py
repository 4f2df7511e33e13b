"""The document's TLS settings, for both sides of the proxy: clients at its doors, and backends.

`contexts` loads certificates, keys and authorities from the document into OpenSSL, by one rule for both sides. `names`
reads which names a certificate is for. It is imported only when needed: its parser takes 10 MiB, which a worker without
TLS should not use.
"""
