"""Certificates that a proxy can use, from Secrets and ConfigMaps, or the reason why there is none.

A proxy refuses a whole document if OpenSSL refuses one certificate in it. So such certificates are found here and left
out: small keys and broken digests with messages of our own, anything else by asking OpenSSL. Good ones are encoded anew
as PEM, without the text around them. Expiry is not checked, since translation has no clock. Messages never contain the
content of a Secret.
"""

import base64
import binascii
import re
from enum import Enum, auto

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes, PrivateKeyTypes
from cryptography.x509.oid import PublicKeyAlgorithmOID

from proxy.document import Certificate
from tunnelgw.model.conditions import ConditionType, Finding, Reason
from tunnelgw.model.core import ConfigMap, Secret
from tunnelgw.model.gateways import Gateway, GatewaySpec
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.model.part import Part
from tunnelgw.model.refs import CORE, GATEWAY_API, ObjectRef
from tunnelgw.openssl import certificates_in, problem_of_authorities, problem_of_pair
from tunnelgw.translate.grants import ReferenceFrom, ReferenceTo, is_permitted, not_permitted
from tunnelgw.translate.queries import View
from tunnelgw.translate.verdicts import BEFORE, NOT_READ, OUTSIDE, false

TLS_SECRET = "kubernetes.io/tls"  # noqa: S105  # a type, not a secret
CA_KEY = "ca.crt"
_MIN_RSA_BITS, _MIN_EC_BITS = 2048, 224  # OpenSSL's security level 2, the default of the distributions
_MAX_HOSTNAME = 253
"""A longer name cannot be a hostname."""
_MAX_CHAIN_OCTETS = 102_400
"""In DER. OpenSSL and BoringSSL, and so most clients, end the handshake if a server's chain is longer."""
_WEAK_DIGESTS = (hashes.MD5, hashes.SHA1)
_PEM, _DER = serialization.Encoding.PEM, serialization.Encoding.DER
_NO_PASSWORD = serialization.NoEncryption()
_PKCS8 = re.compile(rb"-----BEGIN PRIVATE KEY-----[^-]*-----END PRIVATE KEY-----")
_UNREADABLE = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)


class Cause(Enum):
    """Why a reference leads to nothing usable. Each kind of referrer maps these to its own condition reasons."""

    NOT_PERMITTED = auto()
    WRONG_KIND = auto()
    NOT_FOUND = auto()
    NOT_USABLE = auto()
    NOT_READ = auto()
    """Its content is not known yet, and may be usable."""


class BadReference(Part, frozen=True):
    cause: Cause
    message: str


class KeyPair(Part, frozen=True):
    """A certificate with its key, and the DNS names that it is valid for, in lower case."""

    certificate: Certificate
    names: tuple[str, ...]


class ClientCertificate(Part, frozen=True):
    certificate: Certificate | None = None
    unresolved: Finding | None = None
    """Set if the reference is bad."""


class CaBundle(Part, frozen=True):
    """Authorities to trust, in PEM."""

    pem: str


def key_pair(view: View, referrer: ReferenceFrom, ref: ObjectRef) -> KeyPair | BadReference:
    """What a certificateRef leads to: a Secret of type kubernetes.io/tls."""
    if (ref.group, ref.kind) != (CORE, Kind.SECRET):
        return BadReference(Cause.WRONG_KIND, f"{_spell(ref)} is not a Secret of the core group")
    target = ReferenceTo(CORE, Kind.SECRET, ref.namespace or referrer.namespace, ref.name)
    if not is_permitted(view, referrer, target):
        return BadReference(Cause.NOT_PERMITTED, not_permitted(referrer, target))
    return view.ask(pair_in_secret, Key(target.namespace, ref.name))


def ca_bundle(view: View, referrer: ReferenceFrom, ref: ObjectRef) -> CaBundle | BadReference:
    """What a caCertificateRef leads to: a ConfigMap or Secret with the key `ca.crt`."""
    if ref.group != CORE or ref.kind not in (Kind.CONFIG_MAP, Kind.SECRET):
        return BadReference(Cause.WRONG_KIND, f"{_spell(ref)} is neither a ConfigMap nor a Secret of the core group")
    target = ReferenceTo(CORE, ref.kind, ref.namespace or referrer.namespace, ref.name)
    if not is_permitted(view, referrer, target):
        return BadReference(Cause.NOT_PERMITTED, not_permitted(referrer, target))
    query = bundle_in_secret if ref.kind == Kind.SECRET else bundle_in_config_map
    return view.ask(query, Key(target.namespace, ref.name))


def client_certificate(view: View, gateway: Key) -> ClientCertificate:
    """A query: the certificate that a Gateway shows to TLS backends (`tls.backend.clientCertificateRef`)."""
    found = view.get(Kind.GATEWAY, gateway)
    ref = _client_certificate_ref(found.spec) if isinstance(found, Gateway) else None
    if not isinstance(found, Gateway) or ref is None:
        return ClientCertificate()
    referrer = ReferenceFrom(GATEWAY_API, Kind.GATEWAY, gateway.namespace)
    pair = key_pair(view, referrer, ref)
    if isinstance(pair, KeyPair):
        return ClientCertificate(pair.certificate)
    reason = Reason.REF_NOT_PERMITTED if pair.cause is Cause.NOT_PERMITTED else Reason.INVALID_CLIENT_CERTIFICATE_REF
    message = f"tls.backend.clientCertificateRef: {pair.message}"
    previous = found.previous_spec if pair.cause is Cause.NOT_READ else None
    previous_ref = _client_certificate_ref(previous) if previous else None
    kept = key_pair(view, referrer, previous_ref) if previous_ref else None
    if isinstance(kept, KeyPair):
        unresolved = false(ConditionType.RESOLVED_REFS, reason, message + BEFORE)
        return ClientCertificate(kept.certificate, unresolved)
    return ClientCertificate(unresolved=false(ConditionType.RESOLVED_REFS, reason, message))


def _client_certificate_ref(spec: GatewaySpec) -> ObjectRef | None:
    return spec.tls.backend.client_certificate_ref if spec.tls and spec.tls.backend else None


def _read(view: View, key: Key) -> Secret | BadReference:
    """A Secret that exists and has been read with its data."""
    secret = view.get(Kind.SECRET, key)
    if not isinstance(secret, Secret):
        return BadReference(Cause.NOT_FOUND, f"Secret {key} does not exist")
    if secret.is_outside:
        return BadReference(Cause.NOT_FOUND, f"Secret {key} {OUTSIDE}")
    if secret.data is None:  # then its type may be unknown too
        return BadReference(Cause.NOT_READ, f"Secret {key} {NOT_READ}")
    return secret


def pair_in_secret(view: View, key: Key) -> KeyPair | BadReference:
    """A query, so that a Secret is parsed once for all references to it."""
    secret = _read(view, key)
    if isinstance(secret, BadReference):
        return secret
    data = secret.data or {}
    if secret.type != TLS_SECRET:
        return _unusable(key, f"is of type {secret.type}, want {TLS_SECRET}")
    try:
        chain = x509.load_pem_x509_certificates(_decode(data.get("tls.crt", "")))
        names = _dns_names(chain[0])
    except _UNREADABLE:
        return _unusable(key, "has no certificate in PEM under tls.crt")
    try:
        key_text = _decode(data.get("tls.key", ""))
        private_key = serialization.load_pem_private_key(key_text, password=None)
    except _UNREADABLE:
        return _unusable(key, "has no private key in PEM without password under tls.key")
    try:
        if problem := _mismatch(private_key, chain):
            return _unusable(key, problem)
        if weakness := next(filter(None, map(_weakness, chain)), ""):
            return _unusable(key, f"has {weakness} under tls.crt")
        # Each listener has a copy in the document, which has room for few chains of a megabyte.
        if (octets := sum(len(certificate.public_bytes(_DER)) for certificate in chain)) > _MAX_CHAIN_OCTETS:
            problem = f"has a chain of {octets:,} octets under tls.crt, clients take at most {_MAX_CHAIN_OCTETS:,}"
            return _unusable(key, problem)
        text = "".join(certificate.public_bytes(_PEM).decode() for certificate in chain)
        secret_text = _key_anew(private_key, key_text, chain[0])
    except _UNREADABLE:
        return _unusable(key, "has a kind of key that TLS cannot use")
    pair = Certificate(text, secret_text)
    if problem := problem_of_pair(pair):
        return _unusable(key, f"has a certificate under tls.crt that OpenSSL does not present: {problem}")
    return KeyPair(pair, names)


def bundle_in_config_map(view: View, key: Key) -> CaBundle | BadReference:
    """A query, so that a ConfigMap is parsed once for all references to it."""
    config_map = view.get(Kind.CONFIG_MAP, key)
    if not isinstance(config_map, ConfigMap):
        return BadReference(Cause.NOT_FOUND, f"ConfigMap {key} does not exist")
    if config_map.data is None:
        return BadReference(Cause.NOT_READ, f"ConfigMap {key} {NOT_READ}")
    pem = authorities(config_map.data.get(CA_KEY, ""))
    if pem is None:
        return BadReference(Cause.NOT_USABLE, f"ConfigMap {key} has no certificates in PEM under {CA_KEY}")
    return CaBundle(pem)


def bundle_in_secret(view: View, key: Key) -> CaBundle | BadReference:
    """A query: the same for a Secret of any type. cert-manager puts the authority into the Secret with the key pair."""
    secret = _read(view, key)
    if isinstance(secret, BadReference):
        return secret
    try:
        pem = authorities(_decode((secret.data or {}).get(CA_KEY, "")).decode())
    except ValueError:  # neither base64 nor text
        pem = None
    return _unusable(key, f"has no certificates in PEM under {CA_KEY}") if pem is None else CaBundle(pem)


def authorities(text: str) -> str | None:
    """All certificates in a text, each once, as PEM; None if there are none, or one cannot be read or used."""
    try:
        pem = "".join(dict.fromkeys(certificates_in(text)))
    except ValueError:
        return None
    return None if problem_of_authorities(pem) else pem


def _unusable(key: Key, problem: str) -> BadReference:
    return BadReference(Cause.NOT_USABLE, f"Secret {key} {problem}")


def _spell(ref: ObjectRef) -> str:
    return f"{ref.group}/{ref.kind} {ref.name}" if ref.group else f"{ref.kind} {ref.name}"


def _decode(data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error as error:
        raise ValueError("not base64") from error


def _key_anew(key: PrivateKeyTypes, text: bytes, leaf: x509.Certificate) -> str:
    """The key, encoded anew as PEM. An RSASSA-PSS key keeps its text: `cryptography` would write it as a plain RSA key,
    which no longer matches the certificate."""
    found = _PKCS8.search(text) if leaf.public_key_algorithm_oid == PublicKeyAlgorithmOID.RSASSA_PSS else None
    plain = found[0] if found else key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, _NO_PASSWORD)
    return plain.decode().strip() + "\n"


def _dns_names(leaf: x509.Certificate) -> tuple[str, ...]:
    try:
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    found = names.get_values_for_type(x509.DNSName)
    return tuple(name.lower() for name in found if len(name) <= _MAX_HOSTNAME)


def _mismatch(key: PrivateKeyTypes, chain: list[x509.Certificate]) -> str:
    leaf, *others = (certificate.public_key() for certificate in chain)
    if key.public_key() == leaf:
        return ""
    if key.public_key() in others:
        return "has other certificates under tls.crt before that of tls.key, which must come first"
    return "has a private key under tls.key that does not match the certificate under tls.crt"


def _weakness(certificate: x509.Certificate) -> str:
    """Why OpenSSL would refuse to present the certificate; empty: no reason known here."""
    if found := _key_weakness(certificate.public_key()):
        return found
    digest = certificate.signature_hash_algorithm
    if isinstance(digest, _WEAK_DIGESTS) and certificate.issuer != certificate.subject:  # roots may have weak ones
        return f"a signature by {digest.name}, want SHA-256 or better"
    return ""


def _key_weakness(key: CertificatePublicKeyTypes) -> str:
    match key:
        case rsa.RSAPublicKey():
            return "" if key.key_size >= _MIN_RSA_BITS else f"a key of {key.key_size} bits, want {_MIN_RSA_BITS}"
        case ec.EllipticCurvePublicKey():
            return "" if key.key_size >= _MIN_EC_BITS else f"a key on a curve of {key.key_size} bits, want P-256"
        case ed25519.Ed25519PublicKey() | ed448.Ed448PublicKey():
            return ""
    return "a kind of key that TLS cannot use"
