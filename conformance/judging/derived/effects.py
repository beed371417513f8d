"""Faults of effects: each not happening, happening twice, or visible in one place only.

An effect is what a request changes in what another route shows. The wrapper reads the other route
before and after the request, so that it knows the change, and then shows the change a number of
times: not at all, twice, or the other way round.
"""

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from conformance.judging.derived.fault import Fault, Wrapper
from conformance.judging.hooks import CONFIG
from conformance.judging.toy.answers import Asked, Response, Sent
from conformance.judging.toy.node import ToyNode
from conformance.shapes import lookup, parents

BALANCE, HISTORY = "/api/v1/wallet/balance", "/api/v1/wallet/transactions"
METRICS, STATUS = "/api/v1/metrics", "/api/v1/status"
SEND, STAKE, UNSTAKE = (f"/api/v1/wallet/{name}" for name in ("send", "stake", "unstake"))
INFERENCE = "/api/v1/inference"


@dataclass(frozen=True)
class Effect:
    """A request, and a number in another resource that it changes."""

    method: str
    path: str
    view: str
    field: str
    # Whose view: the account that asked, or the one that the request names.
    receiver: bool = False

    @property
    def name(self) -> str:
        """The effect in words."""
        whose = "the receiver's " if self.receiver else ""
        return f"{self.method} {self.path} on {whose}{self.field} of {self.view}"

    @property
    def touches(self) -> frozenset[str]:
        """The keys of both routes."""
        return frozenset({f"{self.method} {self.path}"})


EFFECTS = (
    Effect("POST", SEND, BALANCE, "balances.available"),
    Effect("POST", SEND, BALANCE, "balances.available", receiver=True),
    Effect("POST", SEND, BALANCE, "balances.total"),
    Effect("POST", STAKE, BALANCE, "balances.available"),
    Effect("POST", STAKE, BALANCE, "balances.staked"),
    Effect("POST", STAKE, BALANCE, "staking.amount"),
    Effect("POST", UNSTAKE, BALANCE, "balances.staked"),
    Effect("POST", UNSTAKE, BALANCE, "balances.pending"),
    Effect("POST", INFERENCE, METRICS, "inference.requests_total"),
    Effect("POST", INFERENCE, METRICS, "inference.tokens_generated"),
)  # fmt: skip
# How often a change is shown instead of once.
TIMES = {"not happening": 0, "happening twice": 2, "the other way round": -1}
LISTED = {"not happening": 0, "happening twice": 2}


def effect_faults() -> Iterator[Fault]:
    """Yield the faults of every effect."""
    for effect in EFFECTS:
        for kind, times in TIMES.items():
            yield Fault(f"effect {kind}", effect.name, effect.touches, _counted(effect, times))
    for receiver in (False, True):
        whose = "the receiver's" if receiver else "the sender's"
        for kind, times in LISTED.items():
            name = f"POST {SEND} on {whose} history"
            yield Fault(f"effect {kind}", name, frozenset({f"POST {SEND}"}),
                        _listed(times, receiver=receiver))  # fmt: skip
    for path in (SEND, STAKE, UNSTAKE, INFERENCE):
        key = frozenset({f"POST {path}"})
        yield Fault("request carried out twice", f"POST {path}", key, _repeated(path))
        yield Fault("request not carried out", f"POST {path}", key, _undone(path))
    yield Fault("effect at once instead of later", f"POST {UNSTAKE}",
                frozenset({f"POST {UNSTAKE}"}), _at_once)  # fmt: skip
    yield Fault("request not carried out", f"PATCH {CONFIG}", frozenset({f"PATCH {CONFIG}"}),
                _frozen(CONFIG, "PATCH"))  # fmt: skip
    for name, change in _DHT.items():
        yield Fault(f"effect {name}", "DHTStore on DHTFindValue",
                    frozenset({"rpc DHTStore", "rpc DHTFindValue"}), change)  # fmt: skip


def _read(node: ToyNode, path: str, headers: dict[str, str]) -> Any:
    _, response = node.answered(Sent("GET", path, b"", headers))
    return response.json if response.status == 200 else None


def _fits(sent: Sent, method: str, path: str) -> bool:
    return sent.method == method and sent.target.partition("?")[0] == path


def _address(node: ToyNode, headers: dict[str, str]) -> Any:
    return (_read(node, BALANCE, headers) or {}).get("address")


def _counted(effect: Effect, times: int) -> Callable[[ToyNode], Wrapper]:
    def make(node: ToyNode) -> Wrapper:
        # What is added to the number, by the address of the account.
        shown: dict[Any, float] = {}
        before: dict[Any, float] = {}

        def accounts(sent: Sent) -> dict[Any, dict[str, str]]:
            own = {_address(node, sent.headers): sent.headers}
            if not effect.receiver:
                return own
            others = {_address(node, headers): headers for headers in node.all_headers()}
            return {who: headers for who, headers in others.items() if who not in own}

        def number(headers: dict[str, str]) -> float | None:
            found = lookup(_read(node, effect.view, headers), effect.field)
            return found[0] if found and isinstance(found[0], int | float) else None

        def request(sent: Sent) -> Sent:
            if _fits(sent, effect.method, effect.path):
                before.clear()
                for who, headers in accounts(sent).items():
                    value = number(headers)
                    if value is not None:
                        before[who] = value
            return sent

        def hook(asked: Asked, response: Response) -> None:
            headers = {"Authorization": asked.authorization or ""}
            if (asked.method, asked.path) == (effect.method, effect.path):
                sent = Sent(asked.method, asked.path, b"", headers)
                for who, own in accounts(sent).items():
                    after = number(own)
                    if who in before and after is not None and response.status == 200:
                        shown[who] = shown.get(who, 0) + (times - 1) * (after - before[who])
                before.clear()
            elif asked.path == effect.view and response.status == 200 and shown:
                who = _address(node, headers) if effect.view == BALANCE else next(iter(shown))
                for holder, key, _ in parents(response.json, effect.field):
                    if key in holder and who in shown:
                        holder[key] = round(holder[key] + shown[who], 6)

        return Wrapper(http=hook, request=request)

    return make


def _listed(times: int, *, receiver: bool) -> Callable[[ToyNode], Wrapper]:
    """Show each entry that a transfer adds to a history this often."""

    def make(node: ToyNode) -> Wrapper:
        made: set[str] = set()

        def hook(asked: Asked, response: Response) -> None:
            if (asked.method, asked.path, response.status) == ("POST", SEND, 200):
                made.add(str(response.json.get("transaction_id")))
            if asked.path == HISTORY and response.status == 200:
                entries = response.json["transactions"]
                kept: list[Any] = []
                for entry in entries:
                    fits = entry.get("id") in made and (entry.get("amount", 0) > 0) == receiver
                    kept += [entry] * (times if fits else 1)
                response.json["transactions"] = kept

        return Wrapper(http=hook)

    return make


def _repeated(path: str) -> Callable[[ToyNode], Wrapper]:
    def make(node: ToyNode) -> Wrapper:
        counted: list[Sent] = []

        def request(sent: Sent) -> Sent:
            if not _fits(sent, "POST", path):
                return sent
            node.answered(sent)
            counted.append(sent)
            return replace(sent, headers={**sent.headers, "X-Judge": "again"})

        return Wrapper(request=request)

    return make


def _undone(path: str) -> Callable[[ToyNode], Wrapper]:
    """Answer as if the request had been carried out, and show everything as it was before."""

    def make(node: ToyNode) -> Wrapper:
        last: dict[str, Any] = {}

        def key(view: str, token: str | None) -> str:
            # The metrics are the same for everybody, and are read without a token.
            return view + (token or "" if view != METRICS else "")

        def request(sent: Sent) -> Sent:
            if _fits(sent, "POST", path):
                for one in (BALANCE, HISTORY, METRICS):
                    known = key(one, sent.headers.get("Authorization"))
                    last.setdefault(known, _read(node, one, sent.headers))
            return sent

        def hook(asked: Asked, response: Response) -> None:
            known = last.get(key(asked.path, asked.authorization))
            plain = asked.method == "GET" and (asked.path != HISTORY or not asked.query)
            if plain and known is not None and response.status == 200:
                response.json = copy.deepcopy(known)

        return Wrapper(http=hook, request=request)

    return make


def _at_once(node: ToyNode) -> Wrapper:
    """Make unstaked money available at once."""
    freed: dict[str, float] = {}

    def hook(asked: Asked, response: Response) -> None:
        token = asked.authorization or ""
        if (asked.path, response.status) == (UNSTAKE, 200):
            amount = lookup(response.json, "unstake.amount")
            freed[token] = freed.get(token, 0.0) + (amount[0] if amount else 0.0)
        if asked.path == BALANCE and response.status == 200 and token in freed:
            response.json["balances"]["available"] += freed[token]

    return Wrapper(http=hook)


def _frozen(view: str, method: str) -> Callable[[ToyNode], Wrapper]:
    """Show a resource for ever as it was first."""

    def make(node: ToyNode) -> Wrapper:
        first: list[str] = []

        def hook(asked: Asked, response: Response) -> None:
            if (asked.method, asked.path, response.status) == ("GET", view, 200):
                first[:] = first or [json.dumps(response.json)]
                response.json = json.loads(first[0])

        return Wrapper(http=hook)

    return make


def _unstored(node: ToyNode) -> Wrapper:
    def hook(operation: str, request: Any, answer: Any) -> Any:
        if operation != "DHTFindValue" or isinstance(answer, str) or not answer.get("found"):
            return answer
        return {**answer, "found": False, "value": ""}

    return Wrapper(grpc=hook)


def _other_value(node: ToyNode) -> Wrapper:
    def hook(operation: str, request: Any, answer: Any) -> Any:
        if operation != "DHTFindValue" or isinstance(answer, str) or not answer.get("found"):
            return answer
        return {**answer, "value": "192.0.2.77:7777"}

    return Wrapper(grpc=hook)


def _refusing(node: ToyNode) -> Wrapper:
    def hook(operation: str, request: Any, answer: Any) -> Any:
        if operation != "DHTStore" or isinstance(answer, str):
            return answer
        return {**answer, "success": False}

    return Wrapper(grpc=hook)


_DHT = {
    "not happening": _unstored, "of another value": _other_value, "reported as refused": _refusing,
}  # fmt: skip
