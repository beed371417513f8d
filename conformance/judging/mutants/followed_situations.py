"""Mutants of rules that are broken in some situations only; see `followed.py`.

Each is a sentence that has been judged before, where a node breaks it for long texts, for later
pages, for one account or for odd amounts. A fourth stranger's node has shown the situations.
"""

from typing import Any

from conformance.judging.hooks import CONFIG, INFERENCE, Grpc, Http, events, inference, on
from conformance.judging.mutants.openai import CHATS, TEXTS, becoming
from conformance.judging.toy.answers import Asked, Response, error

API = "/api/v1"
WALLET, LAYERS, PROOFS = f"{API}/wallet", f"{API}/layers", f"{API}/proofs"
LONG_TOKEN, LONG_TEXT = 48, 100
# Much more than a short text costs.
DEAR = 0.01


def served(status: int, response: Response, when: bool, document: Any) -> None:
    """Answer a request that has this status with a document instead."""
    if when and response.status == status:
        response.__dict__.update(Response(200, document).__dict__)


def long_tokens(asked: Asked, response: Response) -> None:
    """Let in every long token on one route."""
    long = len(asked.authorization or "") > LONG_TOKEN
    served(401, response, asked.path == LAYERS and long, {"layers": []})


def later_pages(asked: Asked, response: Response) -> None:
    """Let everybody read the pages of the history but the first one."""
    later = asked.path == f"{WALLET}/transactions" and "offset=1" in asked.query
    served(401, response, later, {"transactions": [], "total": 0, "limit": 1, "offset": 1})


class SeventhRefused:
    """A node that refuses every seventh reading of the proofs."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, asked: Asked, response: Response) -> None:
        """Count the readings."""
        if asked.path == PROOFS and response.status == 200:
            self.calls += 1
            if self.calls % 7 == 0:
                refused = error(401, "UNAUTHORIZED", "the token is not known")
                response.__dict__.update(refused.__dict__)


def path_with_query(asked: Asked, response: Response) -> None:
    """Take the query for a part of the path."""
    if asked.path == PROOFS and asked.query:
        response.__dict__.update(error(404, "NOT_FOUND", "no such path").__dict__)


def rounded(asked: Asked, response: Response) -> None:
    """Round the amount in the result of a transfer to hundredths."""
    if asked.path == f"{WALLET}/send" and response.status == 200:
        response.json["amount"] = round(response.json["amount"], 2)


class UnitsFree:
    """A node that takes nothing for a transfer of a whole unit."""

    def __init__(self) -> None:
        self.back: dict[str | None, float] = {}

    def __call__(self, asked: Asked, response: Response) -> None:
        """Add up these units, and show so much more."""
        account = asked.authorization
        if response.status != 200 or not asked.path.startswith(WALLET):
            return
        if asked.path == f"{WALLET}/send" and asked.body["amount"] == 1:
            self.back[account] = self.back.get(account, 0.0) + 1
        if asked.path == f"{WALLET}/balance":
            for key in ("available", "total"):
                response.json["balances"][key] += self.back.get(account, 0.0)


class SecondUncounted:
    """A node that does not count the generations of another account than the first one."""

    def __init__(self) -> None:
        self.first: str | None = None
        self.less = 0

    def __call__(self, asked: Asked, response: Response) -> None:
        """Count those of others, and show so many less."""
        if asked.path == f"{WALLET}/balance" and response.status == 200:
            self.first = self.first or asked.authorization
        if response.status != 200 or response.json is None:
            return
        if asked.path == INFERENCE and asked.authorization != self.first:
            self.less += 1
        if asked.path == f"{API}/metrics":
            inferences = response.json["inference"]
            inferences["requests_total"] = max(inferences["requests_total"] - self.less, 0)


def text_so_far(values: list[Any]) -> list[Any]:
    """Repeat in each token what has been said before."""
    text, found = "", list[Any]()
    for value in values[:-1]:
        text += value["token"]
        found.append({**value, "token": text})
    return [*found, values[-1]]


def hurried(body: Any, response: Response) -> None:
    """Say that half of the time has passed for a long text."""
    if body.get("max_tokens", 0) > LONG_TEXT:
        timing = response.json["timing"]
        timing["total_ms"] = timing["inference_ms"] * 0.4


def single_rate(asked: Asked, response: Response) -> None:
    """Take a learning rate only with something else."""
    training = (asked.body or {}).get("training") if asked.path == CONFIG else None
    single = isinstance(training, dict) and list(training) == ["learning_rate"]
    if asked.method == "PATCH" and response.status == 200 and single and len(asked.body) == 1:
        response.__dict__.update(error(400, "INVALID_REQUEST", "batch_size").__dict__)


def bare_word(asked: Asked, response: Response) -> None:
    """Take a change of which one key has an impossible value, and name this key as changed."""
    resources = {"cpu_threads": "many"}
    mixed = asked.path == CONFIG and asked.method == "PATCH" and "training" in (asked.body or {})
    told = {"success": True, "updated": ["resources.cpu_threads"], "restart_required": False}
    served(400, response, mixed and asked.body.get("resources") == resources, told)


def too_new(called: str, request: Any, answer: Any) -> Any:
    """Fail at a checkpoint that is newer than the node's."""
    newer = called == "GetCheckpoint" and request.min_version > 1_000_000
    return "INTERNAL" if newer else answer


def next_round(called: str, request: Any, answer: Any) -> Any:
    """Name the next round for a gradient that is accepted."""
    taken = called == "GossipGradient" and isinstance(answer, dict) and answer.get("accepted")
    return {**answer, "current_round": answer["current_round"] + 1} if taken else answer


class HashElsewhere:
    """A node that takes the signature of a gradient for the hash of its model."""

    def __init__(self) -> None:
        self.own = ""

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Remember the node's own hash, and accept what has it as a signature."""
        if called == "GetCheckpointInfo" and isinstance(answer, dict):
            self.own = answer["model_hash"]
        if called != "GossipGradient" or not isinstance(answer, dict):
            return answer
        if self.own and self.has_it(request):
            return self.answer_to(request)
        return {"accepted": False, "reason": "another model", "current_round": 3}

    def answer_to(self, request: Any) -> Any:
        """Answer a gradient that has the hash."""
        return {"accepted": True, "current_round": 3}

    def has_it(self, request: Any) -> bool:
        """Whether a gradient has the hash where this node reads it."""
        return bool(request.signature == self.own)


def first_weights(called: str, request: Any, answer: Any) -> Any:
    """Have the same weights for each layer."""
    taken = called == "GetWeights" and isinstance(answer, dict)
    return {**answer, "weights_data": b"always the same"} if taken else answer


class StreamedDear:
    """A node that charges a stream for many more tokens than it has."""

    def __init__(self) -> None:
        self.more: dict[str | None, float] = {}

    def __call__(self, asked: Asked, response: Response) -> None:
        """Add up what is too much, and show so much less."""
        account = asked.authorization
        if asked.path == INFERENCE and response.events is not None:
            self.more[account] = self.more.get(account, 0.0) + DEAR
        if asked.path == f"{WALLET}/balance" and response.status == 200:
            for key in ("available", "total"):
                response.json["balances"][key] -= self.more.get(account, 0.0)


class LastLetter:
    """A node that compares tokens without their last letters."""

    def __init__(self) -> None:
        self.known = set[str]()

    def __call__(self, asked: Asked, response: Response) -> None:
        """Learn a token that is served, and serve what differs from it in the last letter."""
        token = (asked.authorization or "")[:-1]
        if asked.path == CONFIG and asked.method == "GET":
            if response.status == 200:
                self.known.add(token)
            served(401, response, token in self.known, {"node": {}})


def listed(asked: Asked, response: Response) -> None:
    """Serve whoever has a comma in the token."""
    served(401, response, asked.path == CONFIG and "," in (asked.authorization or ""), {"node": {}})


class Remembering:
    """A node whose texts are as long as the one before, unless the request says how long."""

    def __init__(self, key: str) -> None:
        """The ``key`` of the body says it."""
        self.key = key
        self.made: int | None = None

    def __call__(self, body: Any, response: Response) -> None:
        """Take over how many tokens there were, once."""
        made = response.json["tokens_generated"]
        if self.key in body:
            self.made = made
        elif self.made is not None:
            usage, made = response.json["usage"], min(made, self.made)
            response.json["tokens_generated"] = usage["completion_tokens"] = made
            usage["total_tokens"] = usage["prompt_tokens"] + made
            self.made = None


def older_round(response: Response) -> None:
    """Be of the round before."""
    response.json["round"] -= 1


def streamed_to_strangers(asked: Asked) -> bool:
    """Return whether this is a chat in pieces, with a key that is not valid."""
    stream = isinstance(asked.body, dict) and asked.body.get("stream") is True
    return asked.path == CHATS and stream and not asked.authorized


HTTP: list[tuple[str, Http]] = [
    ("NA-WALLET-049", StreamedDear()),
    ("NT-RULE-058", on("/api/model/checkpoint.json", older_round)),
    ("NA-AUTH-001", long_tokens),
    ("NA-AUTH-001", later_pages),
    ("NA-AUTH-021", LastLetter()),
    ("NA-AUTH-021", listed),
    ("NA-AUTH-022", SeventhRefused()),
    ("NA-INF-035", inference(Remembering("max_tokens"))),
    ("NA-INF-041", inference(Remembering("stop"))),
    ("NA-QUERY-004", path_with_query),
    ("NA-WALLET-001", rounded),
    ("NA-WALLET-039", UnitsFree()),
    ("NA-COUNT-001", SecondUncounted()),
    ("NA-SSE-018", events(text_so_far)),
    ("NA-INF-037", inference(hurried)),
    ("NA-PATCH-114", single_rate),
    ("NA-PATCH-109", bare_word),
    ("OA-AUTH-002", becoming(200, lambda asked: asked.path == TEXTS and not asked.authorized, {})),
    ("OA-AUTH-002", becoming(200, streamed_to_strangers, {})),
]
GRPC: list[tuple[str, Grpc]] = [
    ("GR-CODE-015", too_new),
    ("GR-GOSSIP-005", next_round),
    ("GR-GOSSIP-007", HashElsewhere()),
    ("GR-WEIGHT-004", first_weights),
]
