"""Mutants that not every answer shows: those to one account, later ones, some of a state."""

import threading
import time
import uuid
from typing import Any

from conformance.judging.hooks import INFERENCE, Http, events, inference
from conformance.judging.toy.answers import Asked, Response, error
from conformance.judging.toy.node import SECOND

API = "/api/v1"
BALANCE, STAKE = f"{API}/wallet/balance", f"{API}/wallet/stake"
MANY = 40
NETWORK, TAKES_S = "/api/network", 0.02
UNSTAKE, SEND = f"{API}/wallet/unstake", f"{API}/wallet/send"


def null_for_second(asked: Asked, response: Response) -> None:
    """Show the second account nothing instead of its balance."""
    if asked.path == BALANCE and asked.authorization == f"Bearer {SECOND}":
        response.json = None if response.status == 200 else response.json


class Later:
    """Another answer to each second request for a route."""

    def __init__(self, path: str, answer: Response | None = None) -> None:
        """Answer with this, or with the same in a list."""
        self.path, self.other, self.asked = path, answer, 0

    def __call__(self, asked: Asked, response: Response) -> None:
        """Count the requests."""
        if asked.path != self.path or asked.query or response.status != 200:
            return
        self.asked += 1
        if self.asked % 2 == 0:
            other = self.other or Response(json=[response.json])
            response.__dict__.update(other.__dict__)


def unstopped(body: Any, response: Response) -> None:
    """Go on behind a stop sequence beside a top_k."""
    if body.get("stop") and "top_k" in body and response.json:
        response.json["text"] = "the toy goes on and on"


def four_stops(body: Any, response: Response) -> None:
    """Take no more than four stop sequences."""
    if len(body.get("stop") or ()) > 4:
        response.__dict__.update(error(400, "TOO_MANY", "four stop sequences").__dict__)


def hardly_counted(body: Any, response: Response) -> None:
    """Write a long text, and count a prompt of many words as one of a few."""
    many = min(body.get("max_tokens", 100), MANY)
    read = len(body["prompt"].split()) // 8 + 3
    usage = {"prompt_tokens": read, "completion_tokens": many, "total_tokens": read + many}
    text = " ".join(["wandering"] * many)
    response.json.update(text=text, tokens_generated=many, usage=usage)


def of_another_default(body: Any, response: Response) -> None:
    """Generate a text that is another one where top_p is named."""
    if "top_p" in body:
        response.json["text"] = response.json["text"].swapcase()


class Waiting:
    """Refuses stakes while something is pending."""

    def __init__(self) -> None:
        self.pending = False

    def __call__(self, asked: Asked, response: Response) -> None:
        """Remember an unstake of the second account, whose money waits for ever."""
        if asked.authorization != f"Bearer {SECOND}":
            return
        if asked.path == UNSTAKE and response.status == 200:
            self.pending = True
        elif asked.path == STAKE and response.status == 200 and self.pending:
            response.__dict__.update(error(409, "COOLDOWN", "something is pending").__dict__)


def first_may_stream(asked: Asked, response: Response) -> None:
    """Refuse a stream to the second account."""
    second = asked.authorization == f"Bearer {SECOND}"
    if second and asked.path == INFERENCE and response.events is not None:
        response.__dict__.update(error(401, "UNAUTHORIZED", "no such token").__dict__)


class FreeBehindRefusals:
    """Charges nothing for generations on a connection that has had a refusal."""

    def __init__(self) -> None:
        self.refused, self.free = set[int](), 0.0

    def __call__(self, asked: Asked, response: Response) -> None:
        """Give back what such a generation has cost."""
        if asked.path == INFERENCE and response.status == 400:
            self.refused.add(asked.connection)
        if asked.path == INFERENCE and asked.connection in self.refused and response.json:
            self.free += response.json.get("cost", {}).get("amount", 0.0)
        if asked.path == BALANCE and response.status == 200:
            response.json["balances"]["available"] += self.free
            response.json["balances"]["total"] += self.free


def left_in_results(body: Any, response: Response) -> None:
    """Leave a stop sequence in a text that it ends at once, but for streams."""
    if body.get("stop") and response.json and not response.json["text"].strip():
        response.json["text"] = body["stop"][0]


def refuses_second(asked: Asked, response: Response) -> None:
    """Let the first account alone read the configuration."""
    if asked.path == f"{API}/config" and asked.authorization == f"Bearer {SECOND}":
        response.__dict__.update(error(403, "FORBIDDEN", "the operator's").__dict__)


def few_candidates(body: Any, response: Response) -> None:
    """Refuse a top_k above 100."""
    if isinstance(body.get("top_k"), int) and body["top_k"] > 100 and response.status == 200:
        response.__dict__.update(error(400, "INVALID_PARAMETER", "top_k is too large").__dict__)


def refuses_strangers(asked: Asked, response: Response) -> None:
    """Refuse a token that is not valid where none is needed."""
    if asked.path == f"{API}/network" and asked.authorization and not asked.authorized:
        response.__dict__.update(error(401, "UNAUTHORIZED", "no such token").__dict__)


def otherwise_if_short(body: Any, response: Response) -> None:
    """Begin a text of a few tokens otherwise."""
    if body.get("max_tokens") in (6, 17) and not body.get("stop") and response.json:
        response.json["text"] = response.json["text"].swapcase()


class OneAtATime:
    """Fails where the network is read by another one at the same moment."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __call__(self, asked: Asked, response: Response) -> None:
        """Take a moment for it."""
        if asked.path != NETWORK:
            return
        if self.lock.acquire(blocking=False):
            time.sleep(TAKES_S)
            self.lock.release()
        else:
            response.__dict__.update(error(500, "INTERNAL", "something went wrong").__dict__)


class FewAtATime:
    """Refuses to read the blocks for more than two at the same time."""

    def __init__(self) -> None:
        self.places = threading.Semaphore(2)

    def __call__(self, asked: Asked, response: Response) -> None:
        """Take a moment for it."""
        if asked.path != "/api/blocks":
            return
        if self.places.acquire(blocking=False):
            time.sleep(TAKES_S)
            self.places.release()
        else:
            response.__dict__.update(error(503, "BUSY", "read later").__dict__)


def body_of_head(asked: Asked, response: Response) -> None:
    """Send the body in an answer to HEAD, too."""
    response.with_head = asked.path.startswith(API)


def to_the_millionth(asked: Asked, response: Response) -> None:
    """Round the amount of a transfer."""
    if asked.path == SEND and response.status == 200:
        response.json["amount"] = round(response.json["amount"], 6)


def no_twelve(asked: Asked, response: Response) -> None:
    """Have no page of twelve blocks."""
    if asked.path == "/api/blocks" and "limit=12" in asked.query:
        response.__dict__.update(error(404, "NOT_FOUND", "no such page").__dict__)


class NothingForNull:
    """Takes a max_tokens that is null for 0."""

    def __init__(self) -> None:
        self.result: Any = None

    def __call__(self, asked: Asked, response: Response) -> None:
        """Keep the last result, and return it without its text."""
        if asked.path != INFERENCE or not isinstance(asked.body, dict):
            return
        if response.status == 200 and response.json is not None:
            self.result = response.json
        elif asked.body.get("max_tokens", 0) is None and self.result is not None:
            ident = uuid.uuid4().hex
            nothing = {**self.result, "id": ident, "text": "", "tokens_generated": 0}
            response.__dict__.update(Response(200, nothing).__dict__)


def streamed_otherwise(values: list[Any]) -> list[Any]:
    """Have another text in streams, with as many tokens."""
    return [{**one, "token": one["token"][::-1].upper()} if "index" in one else one
            for one in values]  # fmt: skip


def otherwise_with_stops(body: Any, response: Response) -> None:
    """Begin a text otherwise where there are stop sequences."""
    if body.get("stop") and response.json:
        response.json["text"] = response.json["text"].swapcase()


class OnlyKnown:
    """Fails where money is sent to an address that has shown no balance."""

    def __init__(self) -> None:
        self.known = set[str]()

    def __call__(self, asked: Asked, response: Response) -> None:
        """Remember the addresses of balances."""
        if response.status != 200:
            return
        if asked.path == BALANCE:
            self.known.add(response.json["address"])
        elif asked.path == SEND and asked.body["to"] not in self.known:
            response.__dict__.update(error(500, "INTERNAL", "something went wrong").__dict__)


class Tripped:
    """Fails once behind four refusals in a row."""

    def __init__(self) -> None:
        self.refused = 0

    def __call__(self, asked: Asked, response: Response) -> None:
        """Count them."""
        if response.status in (400, 401, 404, 405):
            self.refused += 1
            return
        if self.refused > 3 and asked.path.startswith(API):
            response.__dict__.update(error(500, "INTERNAL", "something went wrong").__dict__)
        self.refused = 0


HTTP: list[tuple[str, Http]] = [
    ("NA-AUTH-052", refuses_second),
    ("NA-AUTH-053", refuses_strangers),
    ("NA-INF-057", inference(few_candidates)),
    ("NA-INF-058", inference(otherwise_if_short)),
    ("NA-INF-059", NothingForNull()),
    ("NA-INF-061", inference(otherwise_with_stops)),
    ("NA-INF-062", inference(four_stops)),
    ("NA-INF-063", inference(hardly_counted)),
    ("NA-INF-064", inference(of_another_default)),
    ("NA-SSE-027", events(streamed_otherwise)),
    ("NA-ROUTE-035", Tripped()),
    ("NA-ROUTE-036", OneAtATime()),
    ("NA-ROUTE-039", body_of_head),
    ("NA-WALLET-096", to_the_millionth),
    ("NT-RULE-175", FewAtATime()),
    ("NT-PAGE-025", no_twelve),
    ("NA-ERR-064", OnlyKnown()),
    ("NA-AUTH-036", first_may_stream),
    ("NA-WALLET-070", FreeBehindRefusals()),
    ("NA-INF-056", inference(left_in_results)),
    ("GEN-032", null_for_second),
    ("NT-RULE-170", Later("/api/inference")),
    ("NT-RULE-171", Later("/api/model", error(404, "NOT_FOUND", "no model"))),
    ("NA-WALLET-094", Waiting()),
    ("NA-INF-013", inference(unstopped)),
]  # fmt: skip
