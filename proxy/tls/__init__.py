"""TLS as the document has it, for both sides of the proxy: clients at its doors, and backends.

`contexts` brings certificates, keys and authorities from the document into OpenSSL, by one rule for both sides; `names`
reads which names a certificate is for. `names` is imported where it is needed and not before: its parser takes 10 MiB,
which a worker without TLS should not have.
"""
