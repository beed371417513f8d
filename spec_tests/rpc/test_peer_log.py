"""A peer that repeats a fault cannot fill the log, and each line has the peer's address."""

from __future__ import annotations

import logging

import pytest
import trio

from meshnode.domain.metering import TrafficMeter
from meshnode.rpc.peer_log import EVERY_S, MAX_ADDRESSES, OTHERS, PeerLog
from spec_tests.rpc.scripted_service import Probe, raw_peer, running, until

LOG = logging.getLogger("meshnode.rpc.connection")


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


@pytest.mark.wire
async def test_a_foreign_program_costs_one_line_with_its_address(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "meshnode.rpc")
    traffic = TrafficMeter()
    async with running(Probe(), traffic=traffic) as port:
        for _ in range(30):
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                await stream.send_all(b"GET / HTTP/1.1\r\n\r\n")
                with trio.fail_after(10):
                    while await stream.receive_some():
                        pass
        async with raw_peer(port) as peer:
            assert await peer.forward()
        await until(lambda: traffic.active_connections == 0, "all are gone")
    assert len(caplog.records) == 1
    assert lines(caplog)[0].startswith("127.0.0.1: ")
    assert "HTTP/2" in lines(caplog)[0]


def test_the_next_line_has_the_number_of_those_that_were_suppressed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = PeerLog(LOG)
    for second in range(60):
        log.write(logging.WARNING, "1.2.3.4", "sent nonsense", second)
    log.write(logging.WARNING, "5.6.7.8", "sent nonsense", 30)
    assert lines(caplog) == ["1.2.3.4: sent nonsense", "5.6.7.8: sent nonsense"]
    log.write(logging.WARNING, "1.2.3.4", "sent nonsense", EVERY_S)
    assert lines(caplog)[-1] == "1.2.3.4: sent nonsense (59 more since the last such line)"
    log.write(logging.WARNING, "1.2.3.4", "sent nonsense", 2 * EVERY_S)
    assert lines(caplog)[-1] == "1.2.3.4: sent nonsense"


def test_many_addresses_share_a_line_and_take_no_memory(caplog: pytest.LogCaptureFixture) -> None:
    log = PeerLog(LOG)
    for number in range(10_000):
        log.write(logging.WARNING, f"10.0.{number >> 8}.{number & 255}", "sent nonsense", 0.0)
    assert len(lines(caplog)) == MAX_ADDRESSES + 1
    assert len(log) == MAX_ADDRESSES + 1
    log.write(logging.WARNING, "9.9.9.9", "sent nonsense", 3 * EVERY_S)
    assert len(log) == 1
    assert lines(caplog)[-1] == "9.9.9.9: sent nonsense"
    assert OTHERS not in caplog.text
