"""Interface 2.1, tracker_url: the form of a node's HTTP address."""

import ipaddress
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.addresses import NODE_URLS_OR_EMPTY, grpc_addresses

groups = st.lists(st.sampled_from(["", "0", "ab", "FFFF", "12345", "g"]), max_size=10)


def accepted(url: str) -> bool:
    return re.fullmatch(NODE_URLS_OR_EMPTY, url) is not None


@pytest.mark.parametrize(
    "url",
    [
        "",
        "http://localhost",
        "http://localhost/",
        "https://node-1.example.org:8000",
        "http://192.0.2.1:1",
        "http://[::1]:64535",
        "http://[2001:db8::1]",
        "http://a:1,https://b,http://[::1]:3/",
    ],
)
def test_addresses_of_nodes_are_accepted(url: str) -> None:
    assert accepted(url)


@pytest.mark.parametrize(
    "url",
    [
        "localhost:8000",
        "ftp://localhost",
        "http://",
        "http://-a",
        "http://a..b",
        "http://a:0",
        "http://a:64536",
        "http://a:123456",
        "http://a/path",
        "http://user@a",
        "http://[C]",
        "http://[::1",
        "http://::1",
        "http://a\n",
        " http://a",
        "http://a,",
        ",http://a",
        "http://a, http://b",
        ",".join(["http://a"] * 17),
    ],
)
def test_other_texts_are_not_accepted_as_addresses(url: str) -> None:
    assert not accepted(url)


@given(groups)
def test_brackets_hold_an_ipv6_address_and_nothing_else(parts: list[str]) -> None:
    text = ":".join(parts)
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        assert not accepted(f"http://[{text}]:80")
    else:
        assert accepted(f"http://[{text}]:80")


@given(st.from_regex(NODE_URLS_OR_EMPTY.replace("$", r"\Z")))
def test_accepted_addresses_can_be_split_into_host_and_port(urls: str) -> None:
    addresses = grpc_addresses(urls)
    assert len(addresses) == (urls.count(",") + 1 if urls else 0)
    for host, port in addresses:
        assert host
        assert 1001 <= port <= 65535


def test_grpc_is_a_thousand_above_http() -> None:
    urls = "http://one:8005,https://[::1]/,http://192.0.2.7"
    assert grpc_addresses(urls) == [("one", 9005), ("::1", 9000), ("192.0.2.7", 9000)]
