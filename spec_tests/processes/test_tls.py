"""TLS on real nodes, with curl, grpcio, h2spec and peers as clients (decision 0171)."""

import re
import shutil
import signal
import ssl
import subprocess
from pathlib import Path

import grpc
import pytest

from meshnode.wire import node_pb2 as pb
from spec_tests.certificates import Certificate, make_certificate
from spec_tests.processes.nodes import TOKEN, Node, running_node, wait_until

pytestmark = [pytest.mark.process, pytest.mark.slow]
BODY = '{"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}'


def curl(node: Node, certificate: Certificate, path: str, *more: str) -> str:
    """Ask by the name of the certificate; return the body, the HTTP version and the status."""
    url = f"https://localhost:{node.port}{path}"
    command = ["curl", "-sS", "-m", "120", "--cacert", str(certificate.authority), url, *more]
    command += ["-w", " %{http_version} %{http_code}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def infer(node: Node, certificate: Certificate, *more: str) -> str:
    """The text that the node generates."""
    headers = ("-H", f"Authorization: Bearer {TOKEN}", "-H", "Content-Type: application/json")
    answer = curl(node, certificate, "/api/v1/inference", *headers, "-d", BODY, *more)
    assert answer.endswith(" 200"), answer
    found = re.search(r'"text":"([^"]*)"', answer)
    assert found, answer
    return found[1]


@pytest.mark.skipif(not shutil.which("curl"), reason="needs curl")
def test_curl_grpcio_and_h2spec_against_a_node(tmp_path: Path) -> None:
    made = make_certificate(tmp_path / "tls")
    with running_node(tmp_path / "data", *made.flags) as node:
        assert "https://127.0.0.1" in "\n".join(node.banner)
        texts = {infer(node, made, option) for option in ("--http1.1", "--http2")}
        assert len(texts) == 1
        assert curl(node, made, "/api/v1/status", "--http2").endswith(" 2 200")

        credentials = grpc.ssl_channel_credentials(made.authority.read_bytes())
        with grpc.secure_channel(f"localhost:{node.port + 1000}", credentials) as channel:
            call = channel.unary_unary(
                "/node.NodeService/GetShardInfo",
                request_serializer=pb.GetShardInfoRequest.SerializeToString,
                response_deserializer=pb.GetShardInfoResponse.FromString,
            )
            assert call(pb.GetShardInfoRequest(), timeout=120).total_layers == 8

        if shutil.which("h2spec"):
            command = ["h2spec", "-t", "-k", "-h", "localhost", "-p", str(node.port)]
            done = subprocess.run(
                [*command, "-P", "/api/v1/health"], capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stdout[-2000:]

        # A new certificate is in force without a restart; half a one changes nothing.
        other = make_certificate(tmp_path / "other")
        shutil.copy(other.certificate, made.certificate)
        shutil.copy(other.key, made.key)
        node.signal(signal.SIGHUP)
        wait_until(lambda: served(node) == other.certificate.read_text().split())
        made.certificate.write_text("half")
        node.signal(signal.SIGHUP)
        wait_until(lambda: "stays as it was" in node.log())
        assert infer(node, other)


def served(node: Node) -> list[str]:
    """The certificate that new connections get."""
    return ssl.get_server_certificate(("127.0.0.1", node.port)).split()


@pytest.mark.skipif(not shutil.which("curl"), reason="needs curl")
def test_a_pipeline_over_tls(tmp_path: Path) -> None:
    """The driver finds the other holder, calls it over TLS, and the text is that of one node."""
    made = make_certificate(tmp_path / "tls")
    flags = (*made.flags, "--tls-ca", str(made.authority))
    with running_node(tmp_path / "whole", *flags) as whole:
        expected = infer(whole, made)
    with running_node(tmp_path / "a", "--layers", "0-3", *flags) as driver:
        tracker = f"https://localhost:{driver.port}"
        with running_node(tmp_path / "b", "--layers", "4-7", "--tracker", tracker, *flags):
            wait_until(lambda: '"peer_count":1' in curl(driver, made, "/api/v1/status"))
            assert infer(driver, made) == expected
