"""What a browser may send for a stranger's page (decision 0131)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.sites import is_near, is_own_host, is_own_origin, listed_names

NAMES = listed_names("Gateway.example.,other.example")


@pytest.mark.parametrize(
    ("address", "near"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.1.2.3", True),
        ("192.168.0.9", True),
        ("100.64.0.1", True),
        ("fe80::1%eth0", True),
        ("fd00::1", True),
        ("", True),
        ("8.8.8.8", False),
        ("::ffff:8.8.8.8", False),
        ("2001:4860:4860::8888", False),
    ],
)
def test_near_clients_are_those_that_strangers_cannot_be(address: str, near: bool) -> None:
    assert is_near(address) is near


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:8000", "127.0.0.1", "[::1]:8000", "[fd00::1]", "203.0.113.7:8000", "localhost",
     "LOCALHOST:8000", "node.localhost:1", "node1:8000", "box.local", "box.local.", "a.internal:80",
     "a.home.arpa", "gateway.example", "Gateway.Example:443", "gateway.example.:443"],
)  # fmt: skip
def test_own_hosts(host: str) -> None:
    assert is_own_host(host, NAMES)


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8000", "gateway.example.evil", "x.gateway.example",
     "127.0.0.1.a", "localhost.evil.example", "evil.example:8000:1", "[::1].evil.example", "a b",
     "user@localhost", "[::1", "evil.local.example", "http://localhost", ""],
)  # fmt: skip
def test_foreign_hosts(host: str) -> None:
    assert not is_own_host(host, NAMES)


def test_any_name_can_be_allowed() -> None:
    assert is_own_host("evil.example", {"*"})
    assert is_own_origin("https://evil.example", "127.0.0.1:8000", {"*"})
    assert not is_own_origin("null", "127.0.0.1:8000", {"*"})


@pytest.mark.parametrize(
    ("origin", "host", "own"),
    [
        ("http://127.0.0.1:8000", "127.0.0.1:8000", True),
        ("http://[::1]:8000", "[::1]:8000", True),
        ("http://LOCALHOST", "localhost:80", True),
        ("https://node.local", "node.local", True),
        ("https://node.local:443", "node.local", True),
        ("https://gateway.example", "127.0.0.1:8000", True),
        ("https://gateway.example:8443", "127.0.0.1:8000", True),
        ("http://127.0.0.1:8001", "127.0.0.1:8000", False),
        ("http://localhost:8000", "127.0.0.1:8000", False),
        ("https://evil.example", "127.0.0.1:8000", False),
        ("https://evil.example", "", False),
        ("https://gateway.example.evil", "127.0.0.1:8000", False),
        ("null", "127.0.0.1:8000", False),
        ("", "127.0.0.1:8000", False),
        ("file://", "127.0.0.1:8000", False),
        ("http://[", "127.0.0.1:8000", False),
        ("http://a:99999", "a:99999", False),
        ("chrome-extension://gateway.example", "127.0.0.1:8000", False),
    ],
)
def test_own_origins(origin: str, host: str, own: bool) -> None:
    assert is_own_origin(origin, host, NAMES) is own


@given(st.text(), st.text())
def test_any_text_is_judged(first: str, second: str) -> None:
    for answer in (is_near(first), is_own_host(first, NAMES), is_own_origin(first, second, NAMES)):
        assert answer in (True, False)
