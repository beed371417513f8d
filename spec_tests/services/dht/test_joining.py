"""Interface 2.1, tracker_url: a node joins by name, by remembered peers, or by another tracker."""

from __future__ import annotations

import json
import logging
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from meshnode.domain.kademlia.policy import ANYWHERE
from meshnode.services.dht.memory import (
    MAX_BYTES,
    MAX_PEERS,
    PEERS_FILE,
    PEERS_FORMAT,
    read_peers,
    write_peers,
)
from spec_tests.domain.kademlia.network import contact_of, id_of
from spec_tests.services.dht.nodes import FAST, id_named, nodes, until

OWN = id_of(0)


class Names(trio.abc.HostnameResolver):
    """A name service that a test controls."""

    def __init__(self) -> None:
        self.known: dict[str, list[str]] = {}
        self.asked = 0
        self.hangs = False

    async def getaddrinfo(self, host: Any, port: Any, *_: Any, **__: Any) -> Any:
        self.asked += 1
        if self.hangs:
            await trio.sleep_forever()
        # Trio passes the name as bytes.
        host = host.decode()
        if host not in self.known:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in self.known[host]]

    async def getnameinfo(self, sockaddr: Any, flags: Any) -> Any:
        raise NotImplementedError


@pytest.fixture
def names() -> Any:
    """A resolver that each test sets itself: Trio keeps it for one ``trio.run`` only."""
    return Names()


async def test_a_name_that_is_not_known_yet(tmp_path: Path, names: Names) -> None:
    trio.socket.set_custom_hostname_resolver(names)
    async with nodes(tmp_path) as running:
        tracker = await running.start("tracker")
        plan = running.plan("a")
        plan.trackers = (("tracker.example", tracker.plan.grpc_port),)
        a = await running.start(plan)
        await until(lambda: names.asked >= 3, "it is asked for again")
        assert not a.dht.joined.is_set()
        # Nothing answers at the first of the two addresses.
        names.known["tracker.example"] = ["127.0.0.2", "127.0.0.1"]
        await until(lambda: a.knows(tracker) and tracker.knows(a), "joined by name")


async def test_a_name_service_that_hangs(tmp_path: Path, names: Names) -> None:
    names.hangs = True
    trio.socket.set_custom_hostname_resolver(names)
    async with nodes(tmp_path) as running:
        tracker = await running.start("tracker")
        plan = running.plan("a")
        plan.timings = replace(FAST, resolve_s=0.05)
        plan.trackers = (("hangs.example", 9000), tracker.plan.as_tracker)
        a = await running.start(plan)
        # The other tracker is an address, which needs no name service.
        await until(lambda: a.knows(tracker), "joined through the other one")


async def test_its_own_address_as_tracker(tmp_path: Path) -> None:
    async with nodes(tmp_path) as running:
        plan = running.plan("a")
        plan.trackers = (plan.as_tracker,)
        a = await running.start(plan)
        b = await running.start("b", a)
        await until(lambda: a.knows(b) and b.knows(a), "others find it")
        assert id_named("a") not in [contact.node_id for contact in a.dht.contacts()]


async def test_a_damaged_file_of_peers_is_ignored(tmp_path: Path) -> None:
    async with nodes(tmp_path) as running:
        tracker = await running.start("tracker")
        plan = running.plan("a", tracker)
        (plan.data_dir / PEERS_FILE).write_text("{not json")
        a = await running.start(plan)
        await until(lambda: a.knows(tracker), "joined all the same")
        await until(
            lambda: tracker.plan.node_id.hex() in (plan.data_dir / PEERS_FILE).read_text(),
            "the file is replaced",
        )


def test_what_is_written_is_read(tmp_path: Path) -> None:
    contacts = [contact_of(number, f"10.0.0.{number}") for number in range(1, 200)]
    write_peers(tmp_path, contacts)
    assert read_peers(tmp_path, OWN, ANYWHERE) == contacts[:MAX_PEERS]
    assert (tmp_path / PEERS_FILE).stat().st_mode & 0o777 == 0o600


def test_a_first_start_says_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert read_peers(tmp_path, OWN, ANYWHERE) == []
    assert caplog.records == []


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"7",
        b"{}",
        b'{"format": "another", "peers": []}',
        b'{"format": "%s"}' % PEERS_FORMAT.encode(),
        b'{"format": "%s", "peers": 7}' % PEERS_FORMAT.encode(),
        b'{"format": "%s", "peers": [7]}' % PEERS_FORMAT.encode(),
        b'{"format": "%s", "peers": [{"node_id": "zz"}]}' % PEERS_FORMAT.encode(),
        b"[" * 60_000,
        b" " * (MAX_BYTES + 1),
    ],
)
def test_damage_is_one_line_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: bytes
) -> None:
    (tmp_path / PEERS_FILE).write_bytes(text)
    with caplog.at_level(logging.WARNING):
        assert read_peers(tmp_path, OWN, ANYWHERE) == []
    (record,) = caplog.records
    assert "damaged" in record.message


def test_a_file_that_cannot_be_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / PEERS_FILE).mkdir()
    assert read_peers(tmp_path, OWN, ANYWHERE) == []
    assert "cannot read" in caplog.text


def test_entries_that_nobody_may_call_are_left_out(tmp_path: Path) -> None:
    good = {"node_id": id_of(1).hex(), "ip": "10.0.0.1", "port": 8000}
    bad: list[dict[str, Any]] = [
        {"node_id": id_of(2).hex()[:-2]},
        {"node_id": OWN.hex()},
        {"ip": "localhost"},
        {"ip": "169.254.1.1"},
        {"ip": 7},
        {"port": 0},
        {"port": "8000"},
        {"port": True},
    ]
    peers = [*({**good, **changes} for changes in bad), good]
    document = {"format": PEERS_FORMAT, "peers": peers}
    (tmp_path / PEERS_FILE).write_text(json.dumps(document))
    assert read_peers(tmp_path, OWN, ANYWHERE) == [contact_of(1, "10.0.0.1")]
