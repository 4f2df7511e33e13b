"""What no TLS library offers: many key updates in one piece (RFC 8446, 4.6.3 and 7)."""

import ssl
from pathlib import Path

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand


def key_updates(count: int, sender: ssl.SSLSocket, secrets: Path, *, wants_answers: bool = False) -> bytes:
    """What `sender`, which has sent no data yet, nor a ticket, may send next; `secrets` is the `keylog_filename` of its
    context.

    `wants_answers`: the other side is to change its keys too, each time.
    """
    message = b"\x18\0\0\x01" + (b"\1" if wants_answers else b"\0") + b"\x16"
    cipher = sender.cipher()
    assert cipher is not None
    assert cipher[0] == "TLS_AES_256_GCM_SHA384"
    lines = (line.split() for line in secrets.read_text().splitlines())
    name = f"{'SERVER' if sender.server_side else 'CLIENT'}_TRAFFIC_SECRET_0"
    secret = next(bytes.fromhex(words[2]) for words in lines if words[0] == name)
    records = []
    for _ in range(count):
        key, nonce = _expanded(secret, b"key", 32), _expanded(secret, b"iv", 12)
        head = b"\x17\x03\x03" + (len(message) + 16).to_bytes(2, "big")
        # The first record under each key: its number is 0, which leaves the nonce as it is.
        records.append(head + AESGCM(key).encrypt(nonce, message, head))
        secret = _expanded(secret, b"traffic upd", 48)
    return b"".join(records)


def _expanded(secret: bytes, label: bytes, size_bytes: int) -> bytes:
    name = b"tls13 " + label
    info = size_bytes.to_bytes(2, "big") + bytes([len(name)]) + name + b"\0"
    return HKDFExpand(hashes.SHA384(), size_bytes, info).derive(secret)
