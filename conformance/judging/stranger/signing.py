"""What signers share: the words of their protocol, questions over HTTP, keys, the line of output.

A *signer* is a tool of a node's operator. ``COMMAND URL KIND`` prints one line of JSON: a message
for the node at URL, which somebody else can send without knowing how that node signs. It looks up
what it needs at the node and sends nothing. It ends with 0, with 3 for a kind that the node does
not offer, and with another status otherwise.

The keys of strangers' nodes are no secrets, so their arithmetic is plain Python in any time.
"""

import argparse
import hashlib
import json
import secrets
import string
import subprocess
import sys
import urllib.parse
import urllib.request
from base64 import b64encode
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

# Sound; with the signature of other content; for another chain; past its expiry; for nobody; sound,
# of another account.
REQUEST, FORGED, FOREIGN, EXPIRED = "request", "forged", "foreign", "expired"
UNANSWERED, WORK, FORGED_WORK, OTHER = "unanswered", "work", "forged-work", "other"
# The result of work that was polled for, with the signature of other content.
FORGED_RESULT: Final = "forged-result"
# Sound, with a block expiry that comes soon after its answer.
BRIEF: Final = "brief"
# The sound result of a worker for a request that is over, whose ID is a third word.
LATE_RESULT: Final = "late-result"
# A request that is to be answered lives for so many blocks.
LIFETIME: Final = 1000
MAX_TOKENS: Final = 8
MORE_TOKENS: Final = 48
# Nobody provides under this key.
SILENT: Final = "5" * 64
KINDS: Final = (REQUEST, FORGED, FOREIGN, EXPIRED, UNANSWERED, WORK, FORGED_WORK)

FIELD: Final = 2**256 - 2**32 - 977
ORDER: Final = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
BASE: Final = (
    0x79BE667EF9DCBBAC55A06295CE870B07029BFCDB2DCE28D959F2815B16F81798,
    0x483ADA7726A3C4655DA4FBFC0E1108A8FD17B448A68554199C47D08FFB10D4B8,
)


class Unsupported(Exception):
    """The node offers nothing of this kind; the text says why."""


class Failed(Exception):
    """A message cannot be made now; the text says why."""


@dataclass(frozen=True)
class Message:
    """Where to POST which JSON."""

    path: str
    body: dict[str, Any]


@dataclass(frozen=True)
class Request(Message):
    """A broadcast inference request.

    `hash` is as the node writes it, `cost` in atoms with the fee, `expires` a height.
    """

    request_id: str
    hash: str
    public_key: str
    prompt: str
    cost: str
    expires: int


@dataclass(frozen=True)
class Node:
    """The node at a base URL."""

    url: str

    def get(self, path: str, **query: str) -> Any:
        """Return the JSON at a path. Raises OSError, ValueError or HTTPException without any."""
        url = self.url + path + (f"?{urllib.parse.urlencode(query)}" if query else "")
        with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310
            return json.loads(answer.read())

    def post(self, path: str, body: Any) -> Any:
        """POST JSON, and return that of the answer. Raises as `get` does."""
        asked = urllib.request.Request(  # noqa: S310
            self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(asked, timeout=30) as answer:  # noqa: S310
            return json.loads(answer.read())


@dataclass(frozen=True)
class Key:
    """A key on secp256k1, by its secret number."""

    secret: int

    @cached_property
    def public(self) -> str:
        """The compressed point, 66 lower-case hex digits."""
        x, y = _multiple_of_base(self.secret)
        return f"{2 + y % 2:02x}{x:064x}"

    def sign(self, content: bytes, *, forged: bool = False) -> tuple[int, int]:
        """Return r and the smaller s for the SHA-256 of the content; if forged, of another."""
        digest = hashlib.sha256(b"something else than " + content if forged else content)
        once = 1 + secrets.randbelow(ORDER - 1)
        r = _multiple_of_base(once)[0] % ORDER
        s = pow(once, -1, ORDER) * (int.from_bytes(digest.digest()) + r * self.secret) % ORDER
        return r, min(s, ORDER - s)


def der(r: int, s: int) -> str:
    """Return a signature as the hex digits of its DER form."""
    parts = [n.to_bytes(n.bit_length() // 8 + 1) for n in (r, s)]
    both = b"".join(bytes([2, len(part)]) + part for part in parts)
    return (bytes([0x30, len(both)]) + both).hex()


def _multiple_of_base(factor: int) -> tuple[int, int]:
    total, power = None, BASE
    while factor:
        if factor % 2:
            total = power if total is None else _add(total, power)
        power, factor = _add(power, power), factor // 2
    return total or BASE


def _add(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    (x, y), (u, v) = one, other
    up, along = (3 * x * x, 2 * y) if one == other else (v - y, u - x)
    slope = up * pow(along, -1, FIELD)
    end = (slope * slope - x - u) % FIELD
    return end, (slope * (x - end) - y) % FIELD


def own_tool(script: str, *command: str) -> dict[str, Any]:
    """Run a program of a node's, in the folder `node` beside its signer; return the JSON it prints.

    Raises subprocess.CalledProcessError, OSError or ValueError without any.
    """
    folder = Path(script).parent / "node"
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    # The seventh's says something behind it.
    found: dict[str, Any] = json.JSONDecoder().raw_decode(done.stdout)[0]
    return found


def made_by_tool(message: dict[str, Any], prompt: str, expires: int) -> Request:
    """Return a request of a tool that prints the call for /rpc, and what it is called by."""
    return Request(
        "/rpc",
        message["rpc"],
        request_id=message["request_id"],
        hash=message["hash"],
        public_key=message["public_key"],
        prompt=prompt,
        cost=message["cost_atoms"],
        expires=expires,
    )


def tokens_of(kind: str) -> int:
    """Return of how many tokens the text is that a request of this kind asks for."""
    return MORE_TOKENS if kind == REQUEST else MAX_TOKENS


def new_prompt() -> str:
    """Return a prompt with a word that no other has, longer than a column of a table."""
    word = "".join(secrets.choice(string.ascii_lowercase) for _ in range(12))
    return f'Say {word} again, "für mich", and then once more: {"the same word, " * 8}please.'


def broadcast(raw: bytes) -> dict[str, Any]:
    """Return the body of the call of `/rpc` that broadcasts a transaction."""
    params = {"tx": b64encode(raw).decode()}
    return {"jsonrpc": "2.0", "id": 1, "method": "broadcast_tx_sync", "params": params}


def run(
    parser: argparse.ArgumentParser, make: Callable[[argparse.Namespace], Message], *more: str
) -> None:
    """Be a signer: parse URL, KIND and what else the parser has, print what `make` returns.

    `more` are kinds that it offers besides the usual ones.
    """
    kinds = (*KINDS, *more)
    parser.add_argument("url", metavar="URL", type=lambda text: text.rstrip("/"))
    parser.add_argument("kind", metavar="KIND", help=", ".join(kinds))
    parser.add_argument("about", metavar="ID", nargs="?", default="", help=LATE_RESULT)
    options = parser.parse_args()
    try:
        if options.kind not in kinds:
            raise Unsupported(f"there is no kind {options.kind}")
        print(json.dumps(asdict(make(options))))
    except Unsupported as error:
        print(f"not supported: {error}", file=sys.stderr)
        sys.exit(3)
    except (Failed, OSError, ValueError, LookupError, TypeError, HTTPException) as error:
        sys.exit(f"{type(error).__name__}: {error}")


@dataclass(frozen=True)
class Tool:
    """A program of a node's that takes what is to be signed as one JSON text, and prints the call.

    ``script`` is the signer beside whose folder `node` it is run.
    """

    script: str
    command: tuple[str, ...]
    accounts: tuple[str, str]
    """Who pays, and who pays for `OTHER`."""
    worker: str
    work: str
    """The member that has the work, in the answer to a poll."""
    chain: str
    """The member that names the chain, in the network."""
    lives: int
    """For so many blocks a request is good."""
    tip: str = "tip"
    """The member that has the height, in the network."""
    soon: int = 6
    """So many blocks are made in a few seconds."""

    def run(self) -> None:
        """Be the signer."""
        parser = argparse.ArgumentParser(description="Signs what a stranger's own tool signs.")
        run(parser, self._make, OTHER, FORGED_RESULT, BRIEF, LATE_RESULT)

    def _signed(self, kind: str, **fields: Any) -> dict[str, Any]:
        return own_tool(self.script, *self.command, json.dumps({"kind": kind, **fields}))

    def _work(self, node: Node, kind: str, about: str) -> Message:
        """Return a poll, or the result of work that was polled for, or is over."""
        worker = {"account": self.worker}
        if kind == LATE_RESULT:
            done = {"request_id": about, "output": "It is late.", "tokens": 3}
            made = self._signed("result", **worker, **done, forge=False)
        elif kind == FORGED_RESULT:
            polled = self._signed("poll", **worker)
            work = node.post(polled["path"], polled["message"])[self.work]
            if work is None:
                raise Failed("there is no work")
            done = {"request_id": work["request_id"], "output": "", "tokens": 1}
            made = self._signed("result", **worker, **done, forge=True)
        else:
            made = self._signed("poll", **worker, forge=kind == FORGED_WORK)
        return Message(made["path"], made["message"])

    def _make(self, options: argparse.Namespace) -> Message:
        node, kind = Node(options.url), options.kind
        if kind in (WORK, FORGED_WORK, FORGED_RESULT, LATE_RESULT):
            return self._work(node, kind, options.about)
        account = self.accounts[kind == OTHER]
        network, served = node.get("/api/network"), node.get("/api/inference")
        fields: dict[str, Any] = {"account": account, "checkpoint": served["serving_root"]}
        unused = self._signed("request", nonce=0, prompt="a", expires_height=1, **fields)
        key = str(unused["public_key"])
        blocks = {EXPIRED: -1, UNANSWERED: self.soon, BRIEF: self.soon}.get(kind, self.lives)
        fields |= {
            "nonce": int(node.get("/api/account", public_key=key)["next_nonce"]),
            "prompt": new_prompt(),
            "expires_height": int(network[self.tip]["height"]) + blocks,
            "max_tokens": tokens_of(kind),
            "forge": kind == FORGED,
            "silent": kind == UNANSWERED,
        }
        if kind == FOREIGN:
            fields["chain_id"] = network[self.chain] + "-other"
        made = self._signed("request", **fields)
        cost = int(served["price_atoms"]) + int(served["fee_atoms"])
        named = {"rpc": made["message"], "hash": made["transaction_hash"], "cost_atoms": str(cost)}
        return made_by_tool(made | named, fields["prompt"], fields["expires_height"])
