"""TLS certificates of the local cloud: one, signed by a throw-away authority that clients trust.

The authority's private key is never written: nobody can sign anything more with it. Clients that are given the bundle
trust it; nothing is ever installed in the machine's own trust store.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import certifi
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from infra.localcloud.access import write_private

_NAMES = ("googleapis.com", "*.googleapis.com", "metadata.google.internal", "localhost")
_ADDRESS = "127.0.0.1"
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_VALID_FOR = dt.timedelta(days=365)
# A run may last for days; a certificate that expires within it is renewed at start.
_RENEW_BEFORE = dt.timedelta(days=30)


@dataclass(frozen=True)
class Certificates:
    """Paths of PEM files. `bundle_pem` (for CURL_CA_BUNDLE, SSL_CERT_FILE) trusts the public web too, for pip."""

    ca_pem: Path
    cert_pem: Path
    key_pem: Path
    bundle_pem: Path


def ensure_certificates(directory: Path) -> Certificates:
    """The certificates in `directory`: those that are there, or new ones when there are none or they end soon."""
    found = Certificates(*(directory / name for name in ("ca.pem", "server.pem", "server-key.pem", "bundle.pem")))
    if not _is_valid(found):
        directory.mkdir(parents=True, exist_ok=True)
        _create(found)
    # Always rewritten: the public authorities may have changed since.
    write_private(found.bundle_pem, _public_authorities() + found.ca_pem.read_bytes())
    return found


def _is_valid(found: Certificates) -> bool:
    try:
        certificate = x509.load_pem_x509_certificate(found.cert_pem.read_bytes())
        authority = x509.load_pem_x509_certificate(found.ca_pem.read_bytes())
        key = serialization.load_pem_private_key(found.key_pem.read_bytes(), password=None)
        certificate.verify_directly_issued_by(authority)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        # Missing, cut off or of another authority: whatever it is, new ones are made.
        return False
    is_current = certificate.not_valid_after_utc - _now() > _RENEW_BEFORE
    has_names = set(names.get_values_for_type(x509.DNSName)) == set(_NAMES)
    return is_current and has_names and key.public_key() == certificate.public_key()


def _create(target: Certificates) -> None:
    authority_key = ec.generate_private_key(ec.SECP256R1())
    server_key = ec.generate_private_key(ec.SECP256R1())
    authority_name = _name("orchestrate local cloud, throw-away authority")
    authority = (
        _builder(authority_name, authority_name, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(is_authority=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    names: Sequence[x509.GeneralName] = [
        *(x509.DNSName(name) for name in _NAMES),
        x509.IPAddress(ipaddress.ip_address(_ADDRESS)),
    ]
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    certificate = (
        _builder(_name("orchestrate local cloud"), authority_name, server_key.public_key())
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(is_authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(identifier, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    key_pem = server_key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    write_private(target.key_pem, key_pem)
    write_private(target.ca_pem, authority.public_bytes(serialization.Encoding.PEM))
    write_private(target.cert_pem, certificate.public_bytes(serialization.Encoding.PEM))


def _builder(subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        # An hour back, for callers whose clock is behind.
        .not_valid_before(_now() - dt.timedelta(hours=1))
        .not_valid_after(_now() + _VALID_FOR)
    )


def _key_usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _public_authorities() -> bytes:
    """certifi's, and those that this machine is configured to trust (a company's proxy, for one), each of them once.

    TensorFlow reads the file for every connection: twice the certificates are twice the time.
    """
    files = [certifi.where(), os.environ.get("SSL_CERT_FILE", "")]
    blocks = [block for file in files if Path(file).is_file() for block in _PEM.findall(Path(file).read_bytes())]
    return b"\n".join(dict.fromkeys(block.replace(b"\r", b"") for block in blocks)) + b"\n"


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _now() -> dt.datetime:
    # Real time, not the cloud's: the callers that check the certificate know no other.
    return dt.datetime.now(dt.UTC)
