"""Certificates and keys: which are taken, and what an exchange leaves in force (decision 0171)."""

import ssl
from pathlib import Path

import pytest

from meshnode.domain.errors import StartupError
from meshnode.tls import ServerTls, peer_context
from spec_tests.certificates import make_certificate


def test_contexts_refuse_what_is_weak(tmp_path: Path) -> None:
    made = make_certificate(tmp_path)
    tls = ServerTls(made.certificate, made.key)
    for context in (tls.http, tls.grpc, peer_context(made.authority)):
        assert context.minimum_version is ssl.TLSVersion.TLSv1_2
        older = [each for each in context.get_ciphers() if each["protocol"] != "TLSv1.3"]
        assert older
        assert all(each["kea"] == "kx-ecdhe" and each["aead"] for each in older)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_key_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    made = make_certificate(tmp_path)
    made.key.chmod(mode)
    with pytest.raises(StartupError, match="others may read"):
        ServerTls(made.certificate, made.key)


def test_files_that_do_not_fit_are_one_line(tmp_path: Path) -> None:
    made, other = make_certificate(tmp_path / "a"), make_certificate(tmp_path / "b")
    sealed = make_certificate(tmp_path / "c", passphrase=b"secret")
    for certificate, key, reason in (
        (made.certificate, other.key, "no certificate and its key"),
        (made.key, made.key, "no certificate and its key"),
        (sealed.certificate, sealed.key, "without a passphrase"),
        (tmp_path / "none", made.key, "cannot read"),
        (made.certificate, tmp_path / "none", "cannot read"),
    ):
        with pytest.raises(StartupError, match=reason) as raised:
            ServerTls(certificate, key)
        assert "\n" not in str(raised.value)
    for authority in (tmp_path / "none", made.key):
        with pytest.raises(StartupError, match="cannot use"):
            peer_context(authority)


def test_a_certificate_is_exchanged_only_for_one_that_can_be_used(tmp_path: Path) -> None:
    made = make_certificate(tmp_path)
    tls = ServerTls(made.certificate, made.key)
    before = tls.http, tls.grpc
    made.certificate.write_text("half a cert")
    with pytest.raises(StartupError):
        tls.reload()
    assert (tls.http, tls.grpc) == before
    make_certificate(tmp_path)
    tls.reload()
    assert tls.http not in before
