"""The operator's signer: a command that makes signed messages which the suite sends.

How a native transaction is signed is not specified, so the suite cannot. ``COMMAND URL KIND``
prints one line of JSON: ``path`` and ``body`` of a POST and, for an inference request, what is
known of it before it is sent. A kind that is about a request has its request ID as a third word. A
signer that offers no such kind ends with 3.
"""

import json
import shlex
import subprocess
from dataclasses import dataclass
from enum import StrEnum

from conformance.strictjson import Json

NOT_OFFERED = 3
WITHIN_S = 60.0


class Kind(StrEnum):
    """What a signer is asked for."""

    REQUEST = "request"
    FORGED = "forged"
    FOREIGN = "foreign"
    EXPIRED = "expired"
    UNANSWERED = "unanswered"
    WORK = "work"
    FORGED_WORK = "forged-work"
    OTHER = "other"
    FORGED_RESULT = "forged-result"
    BRIEF = "brief"
    LATE_RESULT = "late-result"


class NotSigned(Exception):
    """The signer made no message; the text says why."""


@dataclass(frozen=True)
class Signed:
    """A message. What a signer does not say of a request is an empty string or 0.

    `cost` is in atoms, with the fee; `expires` is the height of its block expiry.
    """

    path: str
    body: Json
    request_id: str = ""
    hash: str = ""
    public_key: str = ""
    prompt: str = ""
    cost: int = 0
    expires: int = 0


def ask(command: str, url: str, kind: Kind, about: str = "") -> Signed:
    """Have the signer make a message for the node at the URL. Raises `NotSigned`.

    ``about`` is the ID of the request that a `LATE_RESULT` is for.
    """
    words = [*shlex.split(command), url, kind.value, *([about] if about else [])]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError) as error:
        raise NotSigned(f"the signer: {error}") from None
    if done.returncode == NOT_OFFERED:
        raise NotSigned(f"the signer offers no {kind.value}: {_last(done.stderr)}")
    if done.returncode:
        raise NotSigned(f"the signer ended with {done.returncode}: {_last(done.stderr)}")
    try:
        return _read(json.loads(done.stdout))
    except ValueError as error:
        raise NotSigned(f"the signer's line: {error}") from None


def _read(line: Json) -> Signed:
    if not isinstance(line, dict):
        raise ValueError("is no object")
    texts = {name: line.get(name, "") for name in ("request_id", "hash", "public_key", "prompt")}
    path, body, cost = line.get("path"), line.get("body"), line.get("cost", "0")
    if not isinstance(path, str) or not path.startswith("/") or body is None:
        raise ValueError("has no path or no body")
    if not isinstance(cost, str) or not cost.isdecimal():
        raise ValueError("cost is no text of an integer")
    expires = line.get("expires", 0)
    if not isinstance(expires, int) or isinstance(expires, bool):
        raise ValueError("expires is no height")
    found = {name: text for name, text in texts.items() if isinstance(text, str)}
    if len(found) < len(texts):
        raise ValueError(f"{', '.join(sorted(set(texts) - set(found)))}: no text")
    return Signed(path, body, cost=int(cost), expires=expires, **found)


def _last(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1][:200]
