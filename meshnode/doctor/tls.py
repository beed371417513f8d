"""Certificate, key and authorities: whether a node could use them, and until when."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509

from meshnode.doctor.examination import Examination
from meshnode.doctor.findings import Finding, fault, ok, warning
from meshnode.domain.connections import is_here
from meshnode.domain.errors import StartupError
from meshnode.tls import ServerTls, peer_context

CHECK = "tls"
SOON = timedelta(days=14)


def check(examination: Examination) -> Iterator[Finding]:
    """Read the files as the node would."""
    config = examination.config
    if not config.tls_cert and not config.tls_key:
        if not is_here(config.host) and config.host != "localhost":
            advice = "give --tls-cert and --tls-key, or a proxy that speaks TLS"
            yield warning(CHECK, "tokens travel in plain text", advice)
    elif not config.tls_cert or not config.tls_key:
        yield fault(CHECK, "tls_cert and tls_key are needed together")
    else:
        yield from _certificate(Path(config.tls_cert), Path(config.tls_key))
    if config.tls_ca:
        try:
            peer_context(Path(config.tls_ca))
        except StartupError as error:
            yield fault(CHECK, str(error))
        else:
            yield ok(CHECK, "peers are called over TLS")


def _certificate(certificate: Path, key: Path) -> Iterator[Finding]:
    try:
        ServerTls(certificate, key)
        ends = x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc
    except (StartupError, OSError, ValueError) as error:
        yield fault(CHECK, str(error))
        return
    left, advice = ends - datetime.now(UTC), "renew it, and send the node a SIGHUP"
    if left <= timedelta():
        yield fault(CHECK, f"the certificate has expired ({ends:%Y-%m-%d})", advice)
    elif left < SOON:
        yield warning(CHECK, f"the certificate expires on {ends:%Y-%m-%d}", advice)
    else:
        yield ok(CHECK, f"the certificate is valid until {ends:%Y-%m-%d}")
