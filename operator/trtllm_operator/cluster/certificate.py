"""The certificate of the admission webhook: self-signed, so it is its own authority in the webhook's `caBundle`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Self

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME: Final = timedelta(days=365)
RENEWAL: Final = LIFETIME / 3
"""What may be left of the lifetime when a new certificate is made."""
CLOCK_SKEW: Final = timedelta(hours=1)
"""How far the API server's clock may be behind ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """PEM texts of the certificate and of its key (secret: never in a log)."""

    certificate: bytes
    key: bytes

    @classmethod
    def make(cls, names: Sequence[str], now: datetime) -> Self:
        """A new one, valid for the DNS names; ECDSA on P-256, which every API server takes."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "trtllm-operator admission webhook")])
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - CLOCK_SKEW)
            .not_valid_after(now + LIFETIME)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(dns) for dns in names]), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .sign(key, hashes.SHA256())
        )
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return cls(certificate=certificate.public_bytes(Encoding.PEM), key=private)

    @property
    def is_usable(self) -> bool:
        """Whether a server can answer with it: both can be read, and the key is the certificate's."""
        try:
            certificate, key = x509.load_pem_x509_certificate(self.certificate), load_pem_private_key(self.key, None)
            return bool(certificate.public_key() == key.public_key())
        except (ValueError, TypeError, UnsupportedAlgorithm):
            return False

    def fault(self, names: Sequence[str], now: datetime) -> str | None:
        """Why a new one is needed: unusable, for other names, or with less than `RENEWAL` left; None: it will do."""
        if not self.is_usable:
            return "it cannot be read, or its key is another's"
        parsed = x509.load_pem_x509_certificate(self.certificate)
        try:
            covered = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            return "it is for no name"
        if missing := set(names) - set(covered.get_values_for_type(x509.DNSName)):
            return f"it is not for {', '.join(sorted(missing))}"
        if parsed.not_valid_after_utc - now < RENEWAL:
            return f"it expires at {parsed.not_valid_after_utc:%Y-%m-%d %H:%MZ}"
        return None
