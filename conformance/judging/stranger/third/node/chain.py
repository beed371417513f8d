"""The chain: blocks, updates, accounts, requests, artifacts. Blocks are made when something happens."""

import hashlib
import json
import time
from decimal import Decimal

import core
from core import fault

CHAIN_ID = "ostrava-4"
GENESIS_ID = core.sha("genesis", CHAIN_ID)
PRICE, CHAIN_FEE = 150_000, 2_000
BLOCKS, UPDATES, REQUESTS, ACCOUNTS, FILES, MEMPOOL, DONE = [], [], {}, {}, {}, [], []


def _file(data):
    digest = hashlib.sha256(data).hexdigest()
    FILES[digest] = data
    return digest


def dumped(value):
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


DATASET = dumped(
    {
        "name": "toy-sentences",
        "tokens": [[3, 1, 4, 1, 5], [9, 2, 6, 5], [3, 5, 8, 9, 7, 9]],
        "vocabulary": core.VOCAB,
    }
)
VALIDATORS = [
    {"owner": "02" + core.sha("owner", n), "power": 100 - 9 * n, "bond_atoms": str((90 - n) * 10**9)} for n in range(7)
]
FUNDED = "02c989b9ef24335732b30e7a0b746b20eb64cf03ced31810037f6b2ef69c7b088c"
KEYS = ["02" + core.sha("key", n) for n in range(4)]


def seed():
    dataset = _file(DATASET)
    shard = _file(b"".join(hashlib.sha256(b"weights%d" % n).digest() for n in range(2048)))
    readme = _file("Toy model of Ostrava, čtyři vrstvy.\n".encode())
    global GENESIS
    GENESIS = dumped(
        {
            "chain_id": CHAIN_ID,
            "genesis_id": GENESIS_ID,
            "dataset_sha256": dataset,
            "manifest": [
                {"path": "data/dataset.json", "sha256": dataset, "bytes": len(DATASET)},
                {"path": "model/layers.bin", "sha256": shard, "bytes": 65536},
                {"path": "README.md", "sha256": readme, "bytes": len(FILES[readme])},
            ],
            "supply": {"atoms": "900000000000000"},
            "validators": [row["owner"] for row in VALIDATORS],
        }
    )
    ACCOUNTS[FUNDED] = {"spendable": 90_000_000, "locked": 0, "nonce": 0}
    for number, key in enumerate(KEYS):
        ACCOUNTS[key] = {
            "spendable": 7_350_000_000 * (number + 1) + 17,
            "locked": 150_000 * number,
            "nonce": number,
        }
    for number in range(1, core.ROUND + 1):
        UPDATES.append(
            {
                "round": number,
                "loss": "%.6f" % (4.5 - number * 0.0557),
                "height": number + 3,
                "root_before": core.sha("root", number - 1),
                "root_after": core.sha("root", number),
            }
        )
    states = {
        11: "completed",
        19: "expired",
        26: "completed",
        33: "completed",
        40: "expired",
        44: "completed",
    }
    for height in range(1, 46):
        txs = []
        if height in states:
            key = KEYS[height % 4]
            ident = "rq" + core.sha("request", height)[:38]
            body = {
                "chain_id": CHAIN_ID,
                "nonce": height % 7,
                "provider": VALIDATORS[0]["owner"],
                "checkpoint_root": core.sha("root", 35),
                "prompt": "Kolik je %d?" % height,
                "max_tokens": 24,
                "price_atoms": str(PRICE),
                "expires_at_height": height + 5,
            }
            txs.append(
                {
                    "hash": core.sha("tx", height),
                    "kind": "inference",
                    "public_key": key,
                    "request_id": ident,
                    "body": body,
                }
            )
            record(ident, states[height], body, height)
        if height % 9 == 5:
            txs.append(
                {
                    "hash": core.sha("bond", height),
                    "kind": "bond",
                    "public_key": VALIDATORS[1]["owner"],
                    "body": {"amount_atoms": str(height * 1_000_000)},
                }
            )
        append(txs, core.ago(minutes=46 - height))


GENESIS = b"{}"


def record(ident, state, body, height):
    entry = {
        "request_id": ident,
        "state": state,
        "prompt": body["prompt"],
        "provider": body["provider"],
        "price_atoms": str(body["price_atoms"]),
        "submitted_at_height": height,
    }
    if state == "completed":
        entry["response"] = {"text": "river %d" % height, "tokens": 2, "height": height + 1}
    if state == "expired":
        entry["refund"] = {"height": height + 5, "atoms": str(PRICE), "public_key": KEYS[height % 4]}
    REQUESTS[ident] = entry
    if state == "pending":
        entry["_since"] = time.monotonic()
    else:
        DONE.append(ident)
        while len(DONE) > 128:
            REQUESTS.pop(DONE.pop(0), None)
    return entry


def tick():
    """Completes what has waited for a second, or notes its expiry and refund."""
    for entry in [item for item in REQUESTS.values() if item["state"] == "pending"]:
        if time.monotonic() - entry["_since"] < 1.0:
            continue
        REQUESTS.pop(entry["request_id"])
        body = {"prompt": entry["prompt"], "provider": entry["provider"], "price_atoms": entry["price_atoms"]}
        append(
            [
                {
                    "hash": core.sha("answer", entry["request_id"]),
                    "kind": "response",
                    "public_key": entry["provider"],
                    "body": {"answers": entry["request_id"]},
                }
            ]
        )
        record(entry["request_id"], "completed", body, entry["submitted_at_height"])


def append(txs, when=None):
    height = len(BLOCKS) + 1
    parent = BLOCKS[-1]["hash"] if BLOCKS else GENESIS_ID
    block = {
        "height": height,
        "parent_hash": parent,
        "time": core.iso(when or core.now()),
        "tx_count": len(txs),
        "results": [{"tx_hash": tx["hash"], "code": 0, "log": ""} for tx in txs],
        "txs": txs,
    }
    block["hash"] = core.sha("block", height, parent, json.dumps(txs, sort_keys=True))
    BLOCKS.append(block)
    return block


def settle(kind, digest):
    """A transfer of the node API is noted on the chain."""
    append(
        [
            {
                "hash": digest,
                "kind": kind,
                "public_key": core.public_key().hex(),
                "body": {"note": core.sha("note", digest)[:16]},
            }
        ]
    )


def short(block):
    out = {key: block[key] for key in ("height", "hash", "parent_hash", "time", "tx_count", "results")}
    if fault("rel-list-hash-parent"):
        out["hash"] = block["parent_hash"]
    return out


def tip():
    block = BLOCKS[-1]
    height, digest = block["height"], block["hash"]
    if fault("rel-tip-hash-stale"):
        digest = BLOCKS[44]["hash"]
    return height, digest


def amount(atoms):
    if fault("fld-atoms-float-rounded"):
        return str(int(float(atoms) // 1000 * 1000)) + ".0"
    return str(atoms)


def supply():
    value = 900_000_000_000_000
    if fault("fld2-supply-exponent"):
        return str(Decimal(value).normalize())
    if fault("rel2-supply-units"):
        value //= core.MICRO
    return amount(value)
