"""Peers remembered over a restart: a file in the data folder (decision 0044).

Its contents are hints, like any claim of another node: each contact is checked by the contact
policy and pinged before it is used. If the file is too large or damaged, the node logs a warning
and starts without it; the next write replaces it.
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
from meshnode.domain.kademlia.refusals import DhtRefusal

log = logging.getLogger(__name__)

PEERS_FILE = "peers.json"
PEERS_FORMAT = "meshnode-peers-v1"
MAX_PEERS = 64
"""It is enough that a few of them are still there."""
MAX_BYTES = 64 * 1024


def read_peers(data_dir: Path, own_id: NodeId, policy: ContactPolicy) -> list[Contact]:
    """The remembered contacts that the policy admits."""
    path = data_dir / PEERS_FILE
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
        if len(text) > MAX_BYTES:
            raise ValueError("it is too large")
        document = json.loads(text)
        if document["format"] != PEERS_FORMAT:
            raise ValueError("unknown format")
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
    for node_id, ip, port in rows[:MAX_PEERS]:
        if isinstance(ip, str) and type(port) is int:
            try:
                contacts.append(policy.admit(Contact(NodeId(node_id), ip, port), own_id))
            except DhtRefusal:
                continue
    return contacts


def write_peers(data_dir: Path, contacts: Iterable[Contact]) -> None:
    """Replace the file, durably. Raises OSError."""
    rows = [
        {"node_id": contact.node_id.hex(), "ip": contact.ip, "port": contact.port}
        for contact in contacts
    ]
    document = {"format": PEERS_FORMAT, "peers": rows[:MAX_PEERS]}
    write_private(data_dir / PEERS_FILE, json.dumps(document, indent=1).encode())
