"""Peers remembered over a restart: a file in the data folder (decisions/0044).

Its contents are hints, like anything that somebody told: each is checked by the contact policy, and
pinged before it is used. A file that is missing, too large or damaged is no peers and a line in the
log; the next writing replaces it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from pathlib import Path

from meshnode.datadir import write_private
from meshnode.domain.kademlia.contact import Contact
from meshnode.domain.kademlia.node_id import NodeId
from meshnode.domain.kademlia.policy import ContactPolicy
from meshnode.domain.kademlia.refusals import Refused

log = logging.getLogger(__name__)

PEERS_FILE = "peers.json"
PEERS_FORMAT = "meshnode-peers-v1"
MOST_PEERS = 64
"""A few of them still being there is enough."""
MOST_BYTES = 64 * 1024


def read_peers(data_dir: Path, own_id: NodeId, policy: ContactPolicy) -> list[Contact]:
    """The remembered contacts that could still be called."""
    path = data_dir / PEERS_FILE
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            raise ValueError("it is too large")
        document = json.loads(text)
        if document["format"] != PEERS_FORMAT:
            raise ValueError("its format is another")
        rows = [
            (bytes.fromhex(row["node_id"]), row["ip"], row["port"]) for row in document["peers"]
        ]
    except FileNotFoundError:
        return []
    except OSError as error:
        log.warning("cannot read %s: %s; starting without it", PEERS_FILE, error.strerror)
        return []
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        log.warning("%s is damaged (%s); starting without it", PEERS_FILE, error)
        return []
    contacts = []
    for node_id, ip, port in rows[:MOST_PEERS]:
        if isinstance(ip, str) and type(port) is int:
            try:
                contacts.append(policy.admit(Contact(NodeId(node_id), ip, port), own_id))
            except Refused:
                continue
    return contacts


def write_peers(data_dir: Path, contacts: Iterable[Contact]) -> None:
    """Replace the file, durably. Raises OSError."""
    rows = [
        {"node_id": contact.node_id.hex(), "ip": contact.ip, "port": contact.port}
        for contact in contacts
    ]
    document = {"format": PEERS_FORMAT, "peers": rows[:MOST_PEERS]}
    write_private(data_dir / PEERS_FILE, json.dumps(document, indent=1).encode())
