"""TLS certificates of the local cloud: one, signed by a throw-away authority that clients trust.

The authority's private key is never written: nobody can sign anything more with it. Clients that are given the bundle
trust it; nothing is ever installed in the machine's own trust store.
"""

from __future__ import annotations

import datetime as dt
import os
import re
from dataclasses import dataclass
from pathlib import Path

import certifi
import trustme
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization

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
    authority = trustme.CA(organization_name="orchestrate local cloud, throw-away authority")
    server = authority.issue_cert(
        *_NAMES, _ADDRESS, common_name="orchestrate local cloud", not_after=_now() + _VALID_FOR
    )
    write_private(target.key_pem, server.private_key_pem.bytes())
    write_private(target.ca_pem, authority.cert_pem.bytes())
    write_private(target.cert_pem, server.cert_chain_pems[0].bytes())


def _public_authorities() -> bytes:
    """certifi's, and those that this machine is configured to trust (a company's proxy, for one), each of them once.

    TensorFlow reads the file for every connection: twice the certificates are twice the time.
    """
    files = [certifi.where(), os.environ.get("SSL_CERT_FILE", "")]
    blocks = [block for file in files if Path(file).is_file() for block in _PEM.findall(Path(file).read_bytes())]
    return b"\n".join(dict.fromkeys(block.replace(b"\r", b"") for block in blocks)) + b"\n"


def _now() -> dt.datetime:
    # Real time, not the cloud's: the callers that check the certificate know no other.
    return dt.datetime.now(dt.UTC)
