"""Whose request it is that a proxy passed on (decision 0171)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.forwarded import Networks, TrustedProxies

PROXIES = TrustedProxies("10.0.0.0/8, 192.0.2.7, fd00::/8")
HEADERS = st.lists(
    st.tuples(
        st.sampled_from([b"X-Forwarded-For", b"Forwarded", b"forwarded"]),
        st.binary(max_size=60) | st.sampled_from([b"for=1.2.3.4", b"10.1.1.1, 1.2.3.4"]),
    ),
    max_size=4,
)


def usual(*values: str) -> list[tuple[bytes, bytes]]:
    return [(b"x-forwarded-for", value.encode()) for value in values]


@pytest.mark.parametrize(
    ("headers", "client"),
    [
        ([], "10.0.0.1"),
        (usual("198.51.100.1"), "198.51.100.1"),
        # Only what trusted proxies appended counts: the client wrote the first two itself.
        (usual("127.0.0.1, 10.9.9.9, 198.51.100.1"), "198.51.100.1"),
        (usual("127.0.0.1", "198.51.100.1, 192.0.2.7"), "198.51.100.1"),
        (usual("198.51.100.1:4711"), "198.51.100.1"),
        (usual("[2001:db8::1]:4711"), "2001:db8::1"),
        (usual("::ffff:198.51.100.1"), "198.51.100.1"),
        (usual("unknown"), "10.0.0.1"),
        (usual("198.51.100.1, unknown"), "10.0.0.1"),
        (usual("10.0.0.2, 10.0.0.3"), "10.0.0.2"),
        ([(b"Forwarded", b'for=198.51.100.1;proto=https, for="[fd00::1]:80"')], "198.51.100.1"),
        ([(b"forwarded", b"proto=https;For=198.51.100.9")], "198.51.100.9"),
        ([(b"forwarded", b"for=_hidden")], "10.0.0.1"),
        # The standard header is the one that is read if there are both.
        ([*usual("198.51.100.1"), (b"forwarded", b"for=198.51.100.2")], "198.51.100.2"),
    ],
)
def test_the_last_address_that_is_no_proxy_is_the_client(
    headers: list[tuple[bytes, bytes]], client: str
) -> None:
    assert PROXIES.client("10.0.0.1", headers) == client


@given(HEADERS)
def test_a_stranger_is_who_it_is_whatever_it_writes(headers: list[tuple[bytes, bytes]]) -> None:
    assert PROXIES.client("198.51.100.200", headers) == "198.51.100.200"
    assert TrustedProxies("").client("127.0.0.1", headers) == "127.0.0.1"


@given(HEADERS)
def test_no_header_breaks_the_rule(headers: list[tuple[bytes, bytes]]) -> None:
    assert PROXIES.client("10.0.0.1", headers)


def test_the_setting_takes_addresses_and_networks() -> None:
    check = Networks()
    assert check("") is None
    assert check("127.0.0.1,10.0.0.0/8, fd00::/8") is None
    assert "addresses" in str(check("proxy.example"))
    assert "addresses" in str(check("10.0.0.1/8"))
