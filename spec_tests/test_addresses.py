"""Section 2.1, tracker_url: the form of a node's HTTP address."""

import ipaddress
import re
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.addresses import NODE_URL_OR_EMPTY

groups = st.lists(st.sampled_from(["", "0", "ab", "FFFF", "12345", "g"]), max_size=10)


def accepted(url: str) -> bool:
    return re.fullmatch(NODE_URL_OR_EMPTY, url) is not None


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
    ],
)
def test_addresses_of_nodes_are_taken(url: str) -> None:
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
    ],
)
def test_others_are_not(url: str) -> None:
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


@given(st.from_regex(NODE_URL_OR_EMPTY.replace("$", r"\Z")))
def test_what_is_taken_can_be_taken_apart(url: str) -> None:
    parts = urlsplit(url)
    assert parts.port is None or 1 <= parts.port <= 64535
    assert bool(parts.hostname) is bool(url)
