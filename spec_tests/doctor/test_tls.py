"""What the doctor says of certificates (decision 0172)."""

from pathlib import Path

from meshnode.config import build_config
from meshnode.doctor import tls
from meshnode.doctor.examination import Examination
from spec_tests.certificates import make_certificate


def levels(**values: str) -> list[tuple[str, str]]:
    found = tls.check(Examination(build_config(values)))
    return [(finding.level, finding.text) for finding in found]


def test_certificates_are_read_as_the_node_would(tmp_path: Path) -> None:
    made = make_certificate(tmp_path)
    certificate, key, authority = str(made.certificate), str(made.key), str(made.authority)
    # It is valid for one more day.
    ((level, text),) = levels(tls_cert=certificate, tls_key=key)
    assert (level, text[:26]) == ("warning", "the certificate expires on")
    assert levels(tls_ca=authority) == [("ok", "peers are called over TLS")]
    assert levels() == []
    assert levels(host="192.0.2.1")[0][0] == "warning"
    assert levels(tls_cert=certificate)[0][0] == "fault"
    assert levels(tls_ca=key)[0][0] == "fault"
    made.key.chmod(0o644)
    assert levels(tls_cert=certificate, tls_key=key)[0][0] == "fault"
