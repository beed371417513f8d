"""The periodic work of a node of the DHT (decisions 0044, 0052, 0053).

Each kind of work runs in a loop of its own, so that a slow one delays no other. A loop does one
thing after another, so upkeep never has more than a few calls in flight.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import trio

from meshnode.domain.kademlia.bucket import K
from meshnode.domain.kademlia.contact import Contact
from meshnode.domain.kademlia.node_id import ID_BITS, id_in_bucket
from meshnode.services.dht.handle import Dht
from meshnode.services.dht.memory import MAX_PEERS, write_peers

log = logging.getLogger(__name__)

MAX_PINGS = 16
"""Queued contacts that are pinged at once."""


async def ping_queued(dht: Dht, contacts: trio.MemoryReceiveChannel[Contact]) -> None:
    """Ping each contact that is queued."""
    async with trio.open_nursery() as nursery:
        for _ in range(MAX_PINGS):
            nursery.start_soon(_ping_one_by_one, dht, contacts.clone())


async def _ping_one_by_one(dht: Dht, contacts: trio.MemoryReceiveChannel[Contact]) -> None:
    async for contact in contacts:
        await dht.ping_queued(contact)


async def publish(dht: Dht) -> None:
    """Publish this node's records that are due, or all of them when a small network has grown.

    In a network of fewer than K nodes each node holds every record, so newcomers need them soon.
    """
    published_at, known = float("-inf"), 0
    while True:
        await trio.sleep(dht.timings.tick_s)
        now, size = trio.current_time(), len(dht.local.table)
        if size < known or now - published_at >= dht.timings.republish_s:
            grown, known = known < size <= K, size
            if grown:
                published_at = now
            dht.refresh_announcements(again=grown)
        for key, value in dht.local.publications.due(now):
            stored = await dht.publish(key, value)
            dht.local.publications.tried(key, value, stored, trio.current_time())


async def hand_on(dht: Dht) -> None:
    """Hand on the records of other nodes that were not stored again for a while."""
    while True:
        await trio.sleep(dht.timings.hand_on_s)
        for due in dht.local.records.due(trio.current_time()):
            await dht.publish(due.key, due.value, due.age_s)


async def refresh(dht: Dht, random_bits: Callable[[int], int]) -> None:
    """Look up this node's id now and then, and a random id in each bucket that is due."""
    looked_up_at = trio.current_time()
    while True:
        await trio.sleep(dht.timings.tick_s)
        now = trio.current_time()
        if len(dht.local.table) == 0:
            continue
        if now - looked_up_at >= dht.timings.own_lookup_s:
            looked_up_at = now
            await dht.find_closest(dht.own_id)
        for bucket in dht.local.table.due_buckets(now):
            await dht.find_closest(id_in_bucket(dht.own_id, bucket, random_bits(ID_BITS)))


async def try_lost(dht: Dht) -> None:
    """Ping lost contacts. If one answers again, look up this node's id to find the others."""
    while True:
        await trio.sleep(dht.timings.lost_s)
        returned = False
        for contact in dht.local.table.lost():
            returned = await dht.messenger.ping(contact) or returned
        if returned:
            log.info("contacts that were lost answer again")
            await dht.find_closest(dht.own_id)


async def remember(dht: Dht, data_dir: Path) -> None:
    """Keep the file of remembered peers up to date. It is left alone while there are no peers."""
    written: list[Contact] = []
    failing = False
    while True:
        # Write the first file soon: a node may be killed at any time.
        await trio.sleep(dht.timings.remember_s if written else dht.timings.tick_s)
        contacts = dht.contacts()[:MAX_PEERS]
        if not contacts or set(contacts) == set(written):
            continue
        try:
            await trio.to_thread.run_sync(write_peers, data_dir, contacts)
        except OSError as error:
            if not failing:
                log.warning("cannot remember peers: %s", error.strerror)
            failing = True
        else:
            written, failing = contacts, False
