"""An authority and certificates of its making, for tests of TLS."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Certificate:
    """Files in PEM: a certificate for localhost, its key, and the authority that signed it."""

    certificate: Path
    key: Path
    authority: Path

    @property
    def flags(self) -> tuple[str, ...]:
        """The options of a node that serves TLS with it."""
        return ("--tls-cert", str(self.certificate), "--tls-key", str(self.key))


def make_certificate(folder: Path, *, passphrase: bytes = b"") -> Certificate:
    """Make an authority and a certificate in ``folder``, in place of those that are there."""
    folder.mkdir(parents=True, exist_ok=True)
    made = Certificate(folder / "cert.pem", folder / "key.pem", folder / "ca.pem")
    signer, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"authority of {folder}"[:64])])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "node")])
    now = datetime.now(UTC)

    def begin(name: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(authority)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
        )

    root = begin(authority, signer.public_key()).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), critical=True
    )
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    leaf = begin(subject, key.public_key()).add_extension(
        x509.SubjectAlternativeName(names), critical=False
    )
    pem = serialization.Encoding.PEM
    made.authority.write_bytes(root.sign(signer, hashes.SHA256()).public_bytes(pem))
    made.certificate.write_bytes(leaf.sign(signer, hashes.SHA256()).public_bytes(pem))
    seal = (
        serialization.BestAvailableEncryption(passphrase)
        if passphrase
        else serialization.NoEncryption()
    )
    made.key.touch(mode=0o600)
    made.key.write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, encryption_algorithm=seal)
    )
    return made
