"""Flags of this run, clocks, and small helpers."""

import hashlib
from datetime import datetime, timedelta, timezone

FLAGS = {"fault": None, "peculiar": None, "port": 8000}
START = datetime.now(timezone.utc)
MICRO = 1_000_000
SEEN = {}


def fault(name):
    return FLAGS["fault"] == name


def peculiar(name):
    return FLAGS["peculiar"] == name


def nth(name):
    """How often this has been asked for, from 1."""
    SEEN[name] = SEEN.get(name, 0) + 1
    return SEEN[name]


def now():
    return datetime.now(timezone.utc)


def today():
    return now().date()


def iso(moment):
    if peculiar("time-offset"):
        return moment.strftime("%Y-%m-%dT%H:%M:%S.%f+00:00")
    if peculiar("time-seconds-history") and moment < START:
        return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def ago(**span):
    return START - timedelta(**span)


def sha(*parts):
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part if isinstance(part, bytes) else str(part).encode("utf-8", "surrogatepass"))
        digest.update(b"\x00")
    return digest.hexdigest()


def public_key():
    """The node's public key: 33 bytes, the same after each start at the same port."""
    return b"\x02" + hashlib.sha256(b"ostrava-node-%d" % FLAGS["port"]).digest()


def node_hash():
    return hashlib.sha1(public_key()).digest()


def node_id():
    return "ost-" + node_hash().hex()


HELD = [4, 5, 6, 7]
TOTAL_LAYERS = 8
HIDDEN = 24
VOCAB = 20
ROUND = 37
EPOCH = 3
STEP = 1861
LOSS = 2.4375

CONFIG = {
    "training": {"enabled": True, "batch_size": 12, "learning_rate": 0.0004, "diloco_steps": 250},
    "resources": {"max_memory_gb": 22.5, "cpu_threads": 6},
}

_PEERS = [
    ("brno", "10.20.0.11", 8100, "driver", [0, 1], 14.2, 76),
    ("plzen", "10.20.0.12", 8000, "worker", [2, 3], 21.75, 52),
    ("zlin", "10.20.0.13", 9100, "worker", [3, 4], 9.4, 31),
    ("most", "10.20.0.14", 8000, "validator", [6, 7], 33.0, 18),
    ("tabor", "10.20.0.15", 8250, "driver", [0, 1, 2], 48.6, 7),
]


def peers():
    out = []
    for name, host, port, role, layers, latency, hours in _PEERS:
        ident = hashlib.sha1(b"peer-" + name.encode()).digest()
        out.append(
            {
                "id": "ost-" + ident.hex(),
                "raw": ident,
                "host": host,
                "port": port,
                "role": role,
                "layers": layers,
                "latency_ms": latency,
                "since": ago(hours=hours, minutes=3),
            }
        )
    return out


MODEL_HASH = sha("model", ROUND)
