"""Mutants that only two answers show, one beside the other; see `followed.py`."""

import time
from datetime import date, timedelta
from typing import Any
from urllib.parse import parse_qs

from conformance import messages
from conformance.judging.hooks import CONFIG, INFERENCE, Grpc, Http, inference, on, put
from conformance.judging.toy.answers import Asked, Response, error
from conformance.judging.toy.native import TIP, VIEW

WALLET = "/api/v1/wallet"
# Requests so close to each other are at the same time.
SOON_S = 0.02
# A stake of fewer days is a short one.
MONTH = 30


def last_lost(body: Any, response: Response) -> None:
    """Lose the last token of a stream."""
    events = response.events or []
    if len(events) > 2:
        del events[-2]


class OnlyKnown:
    """A history without transfers to an address whose balance nobody has asked for."""

    def __init__(self) -> None:
        self.known = {"somebody"}

    def __call__(self, asked: Asked, response: Response) -> None:
        """Learn addresses, and leave out the other ones."""
        if response.status == 200 and asked.path == f"{WALLET}/balance":
            self.known.add(response.json["address"])
        if response.status == 200 and asked.path == f"{WALLET}/transactions":
            rows = response.json["transactions"]
            kept = [row for row in rows if row["type"] != "send" or row.get("to") in self.known]
            response.json["total"] -= len(rows) - len(kept)
            response.json["transactions"] = kept


class MixedUp:
    """A node that answers with the balance that was read last, also by another account."""

    def __init__(self) -> None:
        self.last: Any = None

    def __call__(self, asked: Asked, response: Response) -> None:
        """Take longer than a request."""
        if response.status == 200 and asked.path == f"{WALLET}/balance":
            self.last = response.json
            time.sleep(SOON_S)
            response.json = self.last


def another_chain(asked: Asked, response: Response) -> None:
    """Name the chain before this one."""
    if asked.path == "/api/inference" and response.status == 200:
        response.json["chain_id"] = "before"


def waits_for_any(asked: Asked, response: Response) -> None:
    """Show each request that is not known as one that waits."""
    unknown = asked.query.endswith(("0badc0de", "deadbeef"))
    if asked.path == "/api/inference/request" and unknown:
        waiting = Response(json={"id": "another", "status": "pending"})
        response.__dict__.update(waiting.__dict__)


def only_get(asked: Asked, response: Response) -> None:
    """Take no POST at an old endpoint."""
    if response.status == 410 and asked.method == "POST":
        response.__dict__.update(error(405, "INVALID_REQUEST", "GET only").__dict__)


def whole_months(response: Response) -> None:
    """Lock a stake for whole months."""
    stake = response.json["stake"]
    stake["duration_days"] = -(-stake["duration_days"] // 30) * 30
    begins = date.fromisoformat(stake["start_date"])
    stake["unlock_date"] = (begins + timedelta(stake["duration_days"])).isoformat()


def half_default(body: Any, response: Response) -> None:
    """Stream half of the tokens where no maximum is given."""
    events = response.events or []
    if "max_tokens" not in body and len(events) > 2:
        del events[len(events) // 2 : -1]
        usage = events[-1]["usage"]
        usage["completion_tokens"] = len(events) - 1
        usage["total_tokens"] = usage["prompt_tokens"] + len(events) - 1


class LatestUsage:
    """A node that reports the usage of the latest request."""

    def __init__(self) -> None:
        self.usage: Any = None

    def __call__(self, body: Any, response: Response) -> None:
        """Take longer than a request."""
        self.usage = response.json["usage"]
        time.sleep(SOON_S)
        response.json["usage"] = self.usage


def none_when_short(response: Response) -> None:
    """Have no multiplier for a short stake."""
    if response.json["stake"]["duration_days"] < MONTH:
        response.json["stake"]["multiplier"] = None


def by_the_clock(response: Response) -> None:
    """Name transactions by the minute."""
    response.json["transaction_id"] = f"tx-{time.time() // 60:.0f}"


def no_jobs(asked: Asked, response: Response) -> None:
    """Know one of the two query paths."""
    if asked.path == "/rpc" and (asked.body.get("params") or {}).get("path") == "/jobs":
        response.__dict__.update(Response(400, {"error": "no path"}).__dict__)


def view_of_today(asked: Asked, response: Response) -> None:
    """Show the present chain as the earlier one."""
    if asked.path == VIEW and response.status == 200:
        response.json["blocks"] = [{"hash": f"hash{TIP}"}]


LISTED = {"/api/blocks": ("blocks", "height"), "/api/training": ("records", "round")}


def oldest_first(path: str) -> Http:
    """Begin with the oldest entries."""

    def hook(asked: Asked, response: Response) -> None:
        if asked.path == path and response.status == 200 and "before" not in asked.query:
            limit = int(parse_qs(asked.query).get("limit", ["5"])[0])
            name, key = LISTED[path]
            many = min(limit, len(response.json[name]))
            response.json[name] = [{key: number} for number in range(1, many + 1)]

    return hook


def poor_streams(asked: Asked, response: Response) -> None:
    """Say within a stream that the balance is too low."""
    streamed = isinstance(asked.body, dict) and asked.body.get("stream") is True
    if asked.path == INFERENCE and response.status == 402 and streamed:
        usage = {"prompt_tokens": 1, "completion_tokens": 0, "total_tokens": 1}
        last = {"token": "[DONE]", "finish_reason": "INSUFFICIENT_BALANCE", "usage": usage}
        response.__dict__.update(Response(events=[last]).__dict__)


def other_ports(response: Response) -> None:
    """Show default ports."""
    response.json.update(port=81, grpc_port=1081)


def default_port(called: str, request: Any, answer: Any) -> Any:
    """Name a default port as that of the responder."""
    if called != "DHTPing" or not isinstance(answer, dict):
        return answer
    there: Any = messages.make("DHTNodeInfo")
    there.CopyFrom(answer["responder"])
    there.port = 81
    return {**answer, "responder": there}


def diverged(response: Response) -> None:
    """Converge with several models."""
    response.json.update(hash_agreement_rate=0.5, is_converging=True)


def coded(asked: Asked, response: Response) -> None:
    """Say that too many requests are a bad one."""
    error = response.json.get("error") if isinstance(response.json, dict) else None
    if response.status == 400 and isinstance(error, dict):
        error["code"] = "RATE_LIMITED"


def no_owner(response: Response) -> None:
    """Have a validator of nobody."""
    for validator in response.json["validators"]:
        validator["owner"] = None


def of_another(response: Response) -> None:
    """Show the prompt of another request."""
    response.json["prompt"] = "Say another."


def one_block(asked: Asked, response: Response) -> None:
    """Give the latest block whatever the height."""
    if asked.path == "/rpc" and asked.body.get("method") == "block":
        response.json["result"] = {"height": TIP}


def unset_round(called: str, request: Any, answer: Any) -> Any:
    """Name no round for a gradient that is accepted."""
    taken = called == "GossipGradient" and isinstance(answer, dict) and answer.get("accepted")
    return {**answer, "current_round": 0} if taken else answer


def any_model(called: str, request: Any, answer: Any) -> Any:
    """Accept gradients of every model."""
    if called != "GossipGradient" or not request.layer_gradients or request.round_id != 3:
        return answer
    return {"accepted": True, "current_round": 3}


class ByTwoBytes:
    """A table that compares IDs by their first two bytes."""

    def __init__(self) -> None:
        self.pinged: list[Any] = []

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """List those first that came first."""
        if called == "DHTPing" and request is not None:
            self.pinged.append(request.sender)
        if called != "DHTFindNode" or request is None or not isinstance(answer, dict):
            return answer
        alike = [one for one in self.pinged if one.node_id[:2] == request.target_id[:2]]
        exact = [one for one in alike if one.node_id == request.target_id]
        return {**answer, "nodes": (exact or alike)[:3] or answer["nodes"]}


HTTP: list[tuple[str, Http]] = [
    ("NA-ERR-028", coded),
    ("NT-RULE-041", waits_for_any),
    ("NT-RULE-042", only_get),
    ("NT-RULE-043", another_chain),
    ("NA-WALLET-048", on(f"{WALLET}/send", by_the_clock, "POST")),
    ("NA-INF-023", inference(LatestUsage())),
    ("NA-ERR-027", poor_streams),
    ("NA-SANE-030", on(CONFIG, other_ports)),
    ("TR-RULE-017", on("/api/training/global", diverged)),
]
GRPC: list[tuple[str, Grpc]] = [("DH-029", default_port)]
# Of texts that are as long each time, of the toy's own paths, of requests that overlap, of stakes
# that no earlier one outlasts, and of addresses that nobody else uses.
GRPC_OF_TOY: list[tuple[str, Grpc]] = [
    ("GR-GOSSIP-005", unset_round),
    ("GR-GOSSIP-006", any_model),
    ("DH-030", ByTwoBytes()),
]
OF_TOY: list[tuple[str, Http]] = [
    ("NT-RULE-057", one_block),
    ("NT-RULE-054", on("/api/inference/request", of_another)),
    ("NT-RULE-055", on("/api/validators", no_owner)),
    ("NT-RULE-056", on("/network/dataset.json", put("more", 1))),
    ("NA-AUTH-026", MixedUp()),
    ("NA-WALLET-047", OnlyKnown()),
    ("NA-WALLET-045", on(f"{WALLET}/stake", whole_months, "POST")),
    ("NA-STAKE-014", on(f"{WALLET}/stake", none_when_short, "POST")),
    ("NA-SSE-018", inference(last_lost, stream=True)),
    ("NA-INF-035", inference(half_default, stream=True)),
    ("NT-RULE-044", no_jobs),
    ("NT-PAGE-007", oldest_first("/api/blocks")),
    ("NT-PAGE-008", oldest_first("/api/training")),
    ("NT-RULE-045", view_of_today),
]
