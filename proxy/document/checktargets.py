"""Checks of backends: addresses, certificates and keys, and that a target says in just one way where requests go."""

import ipaddress
import re
from collections.abc import Iterable, Set

from daemonkit.ipv4 import MISTYPED_IPV4, is_mistyped_ipv4
from proxy.document.durations import seconds
from proxy.document.part import Certificate, Unset
from proxy.document.problems import Findings, excerpt
from proxy.document.targets import ActiveHealth, BackendTarget, BackendTLS

_NAMED = re.compile(r"(?P<host>[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_.])?):(?P<port>[0-9]{1,5})")
_BRACKETED = re.compile(r"\[(?P<host>[0-9A-Fa-f:.]+)\]:(?P<port>[0-9]{1,5})")
_PEM = re.compile(r"-----BEGIN (?P<kind>[A-Z0-9 ]{1,40})-----\r?\n[A-Za-z0-9+/=\s]+-----END (?P=kind)-----")

_ENCRYPTED = re.compile(r"-----BEGIN ENCRYPTED PRIVATE KEY-----|^Proc-Type: 4,ENCRYPTED", re.MULTILINE)
"""Both forms of an encrypted key in PEM: PKCS #8, and the traditional one of OpenSSL."""


def check_target(target: BackendTarget, known: Set[str], at: str, findings: Findings) -> None:
    """Check the target of a backend reference, mirror or authorization; `known` are the names in `backends`."""
    inline = bool(target.address or target.addresses or target.tls or target.protocol != "http")
    if target.backend:
        if target.backend not in known:
            findings.add(f"{at}.backend", f"no entry of `backends` has the name `{target.backend}`")
        if inline:
            findings.add(
                at, "`backend` excludes `address`, `addresses`, `protocol` and `tls`: the named entry has them"
            )
        return
    if target.address and target.addresses:
        findings.add(f"{at}.addresses", "`address` is given too, want one of the two")
    if target.address:
        _check_address(target.address, f"{at}.address", findings)
    check_addresses(target.addresses, f"{at}.addresses", findings)
    check_tls(target.protocol, target.tls, at, findings)


def check_addresses(addresses: Iterable[str], at: str, findings: Findings) -> None:
    for place, address in enumerate(addresses):
        _check_address(address, f"{at}[{place}]", findings)


def _check_address(address: str, at: str, findings: Findings) -> None:
    if not _is_address(address):
        findings.add(at, f"{excerpt(address)} is not an address, want host:port, for IPv6 [host]:port")
    elif is_mistyped_ipv4(address.rpartition(":")[0]):
        findings.add(at, f"{excerpt(address)} has a host that is {MISTYPED_IPV4}")


def _is_address(text: str) -> bool:
    found = _NAMED.fullmatch(text) or _BRACKETED.fullmatch(text)
    if not found or not 1 <= int(found["port"]) <= 65535:
        return False
    if found.re is _NAMED:
        return True
    try:
        ipaddress.IPv6Address(found["host"])
    except ValueError:
        return False
    return True


def check_tls(protocol: str, tls: BackendTLS | Unset, at: str, findings: Findings) -> None:
    if protocol == "https" and not tls:
        findings.add(at, "field `tls` is missing, which protocol https needs: at least its `serverName`")
    if not tls:
        return
    if protocol != "https":
        findings.add(f"{at}.tls", f"protocol is {protocol}, which has no TLS; want protocol https or no `tls`")
    if tls.ca:
        check_pem(tls.ca, "CERTIFICATE", f"{at}.tls.ca", findings)
    for place, name in enumerate(tls.subject_alt_names):
        if bool(name.hostname) == bool(name.uri):
            findings.add(f"{at}.tls.subjectAltNames[{place}]", "want either `hostname` or `uri`")
    if tls.client_certificate:
        check_certificate(tls.client_certificate, f"{at}.tls.clientCertificate", findings)


def check_active_health(policy: ActiveHealth, at: str, findings: Findings) -> None:
    """Check the only durations of a document that must not be 0s."""
    if not seconds(policy.interval):
        findings.add(f"{at}.interval", f"{policy.interval} is not a time between two probes, want one such as 10s")
    if not seconds(policy.timeout):
        findings.add(f"{at}.timeout", f"{policy.timeout} would wait forever for an answer, want a time such as 2s")


def check_certificate(certificate: Certificate, at: str, findings: Findings) -> None:
    check_pem(certificate.certificate, "CERTIFICATE", f"{at}.certificate", findings)
    if certificate.private_key.startswith("<redacted"):
        findings.add(f"{at}.privateKey", "the key is redacted: GET /config never returns keys, put the key itself here")
    elif _ENCRYPTED.search(certificate.private_key):
        findings.add(
            f"{at}.privateKey", "the key is encrypted, want it without a passphrase: `openssl pkey` writes it so"
        )
    else:
        check_pem(certificate.private_key, "PRIVATE KEY", f"{at}.privateKey", findings)


def check_pem(text: str, kind: str, at: str, findings: Findings) -> None:
    """Check only that there is a PEM block of this kind; whether its content is valid shows when it is loaded."""
    kinds = [block["kind"] for block in _PEM.finditer(text)]
    if not any(found.endswith(kind) for found in kinds):
        seen = f"blocks {', '.join(sorted(set(kinds)))}" if kinds else f"{len(text)} characters without a PEM block"
        findings.add(at, f"{seen}, want -----BEGIN {kind}-----")
    elif kind == "CERTIFICATE" and "PRIVATE KEY-----" in text:
        findings.add(at, "a private key among the certificates, which GET /config would show; want certificates alone")
