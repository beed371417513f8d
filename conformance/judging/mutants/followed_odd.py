"""Mutants of rules that are broken for odd values, for streams or the second time.

A second list of faults for the first stranger's node has shown them; see `followed.py`.
"""

import json

from conformance.judging.hooks import CONFIG, INFERENCE, Http
from conformance.judging.mutants.followed_situations import WALLET, served
from conformance.judging.toy.answers import Asked, Response, error

COLD = 0.05
# What the toy takes for a generation, or less.
COST = 0.001
# Above the default, and a limit that not all pages of the suite have.
MANY, FAR = 150, "limit=30"


def cold_fails(asked: Asked, response: Response) -> None:
    """Fail at temperatures near to zero."""
    body = asked.body if isinstance(asked.body, dict) else {}
    temperature = body.get("temperature")
    if asked.path == INFERENCE and isinstance(temperature, float) and 0 < temperature < COLD:
        failed = error(500, "INTERNAL_ERROR", "overflow")
        response.__dict__.update(failed.__dict__)


def no_section(asked: Asked, response: Response) -> None:
    """Take a list for a section of the configuration, and change nothing."""
    listed = asked.path == CONFIG and isinstance((asked.body or {}).get("training"), list)
    told = {"success": True, "updated": [], "restart_required": False}
    served(400, response, asked.method == "PATCH" and listed, told)


def longer_with_stop(asked: Asked, response: Response) -> None:
    """Generate more than by default where a stop sequence and no length is given."""
    body = asked.body if isinstance(asked.body, dict) else {}
    made = asked.path == INFERENCE and "tokens_generated" in (response.json or {})
    if made and body.get("stop") and "max_tokens" not in body:
        usage = response.json["usage"]
        response.json["tokens_generated"] = usage["completion_tokens"] = MANY
        usage["total_tokens"] = usage["prompt_tokens"] + MANY


def returns_refused(asked: Asked, response: Response) -> None:
    """Refuse a prompt with a carriage return."""
    body = asked.body if isinstance(asked.body, dict) else {}
    if asked.path == INFERENCE and "\r" in str(body.get("prompt")) and response.status == 200:
        refused = error(400, "INVALID_PROMPT", "the prompt has a control character")
        response.__dict__.update(refused.__dict__)


def fewer_at_thirty(asked: Asked, response: Response) -> None:
    """Give a page of proofs with one limit the length of a shorter one."""
    if asked.path == "/api/v1/proofs" and FAR in asked.query and response.json is not None:
        del response.json["proofs"][1:]


class StreamsOfOthers:
    """A node where the account that was seen first pays for all streams."""

    def __init__(self) -> None:
        self.first: str | None = None
        self.given: dict[str | None, float] = {}

    def __call__(self, asked: Asked, response: Response) -> None:
        """Add up what streams cost, give that back to whoever asked, and take it from the first."""
        if asked.path == f"{WALLET}/balance" and response.status == 200:
            self.first = self.first or asked.authorization
            given = self.given.get(asked.authorization, 0.0)
            if asked.authorization == self.first:
                given -= sum(self.given.values())
            for key in ("available", "total"):
                response.json["balances"][key] += given
        if asked.path == INFERENCE and response.events is not None:
            self.given[asked.authorization] = self.given.get(asked.authorization, 0.0) + COST


class RepeatsFree:
    """A node that takes nothing for what it has generated before."""

    def __init__(self) -> None:
        self.seen = set[str]()
        self.given: dict[str | None, float] = {}

    def __call__(self, asked: Asked, response: Response) -> None:
        """Give the cost of a repetition back, and show so much more."""
        account = asked.authorization
        if asked.path == INFERENCE and response.status == 200 and response.json is not None:
            body = json.dumps(asked.body, sort_keys=True)
            if body in self.seen:
                cost = response.json["cost"]["amount"]
                self.given[account] = self.given.get(account, 0.0) + cost
            self.seen.add(body)
        if asked.path == f"{WALLET}/balance" and response.status == 200:
            for key in ("available", "total"):
                response.json["balances"][key] += self.given.get(account, 0.0)


HTTP: list[tuple[str, Http]] = [
    ("NA-INF-006", cold_fails),
    ("NA-PATCH-109", no_section),
    ("NA-INF-004", longer_with_stop),
    ("NA-INF-030", returns_refused),
    ("NA-QUERY-009", fewer_at_thirty),
    ("NA-WALLET-033", StreamsOfOthers()),
    ("NA-WALLET-046", RepeatsFree()),
]
