"""Interface 2.1, 3 and 4.1: what two accounts can do with their money, a step at a time.

A step says by how much it may change either account. Which steps are made, and with which amounts,
is drawn, with the seed of the run.
"""

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from conformance.checks import wallet
from conformance.checks.auth import INVENTED
from conformance.checks.mixed_pairs import every_pair
from conformance.checks.money import EXACT, Money, read_money
from conformance.checks.wallet import AMOUNT, DAYS, EXCESS, MEMO, STAKES
from conformance.context import Context
from conformance.editions import SEVENTH
from conformance.findings import Skipped
from conformance.httprequest import Credential
from conformance.httpwire import Answer
from conformance.shapes import lookup
from conformance.strictjson import Json, brief, is_number

# Below, around and above what other checks send; with few decimals and with many.
TINY, SENT = (0.0004, 0.00321), (AMOUNT, 0.0137, 0.099, 0.25, 1.0, 1.25)
PARTS = (AMOUNT, 0.00321, 0.0137)
# What a stake may cost beside its amount, which is not said.
STAKING = 2 * AMOUNT
# A transfer that far behind a generation is made while that goes on, or after it.
HEADSTART_S = 0.005
# By so much more than there is a stake is too large, and by so much at least.
PLENTY, LITTLE = 0.4, 0.001
# What changes something, or is refused, each behind each of them once.
PAIRED = (
    "first to second", "second to first", "second to itself", "stake", "unstake",
    "a stake of a little too much", "a bad body", "a stream", "a generation",
)  # fmt: skip
# So many steps are drawn after each kind has been once.
MORE = 4
SEND, STAKE, UNSTAKE = "/wallet/send", "/wallet/stake", "/wallet/unstake"
FREE = (0.0, 0.0)
# After so many steps it is known how long one takes, and several times as long is waited for.
KNOWN, TIMES, LEAST_S = 3, 10, 1.0


@dataclass
class Moved:
    """What a step was answered with, and by how much it may change each of the two accounts.

    The least and the most that more is available, for the first and the second account; and how
    much more the second one has staked, if that is known.
    """

    what: str
    answers: list[Answer]
    available: list[tuple[float, float]]
    staked: float | None = 0.0
    told: dict[str, float] = field(default_factory=dict)
    """What the answer says of the balance of the second account."""
    settled: bool = False
    """Whether it leaves what is pending as it is."""


@dataclass(frozen=True)
class Sent:
    """A transfer that was made: who of the two has sent it, to whom, and how much."""

    sender: int
    to: str
    amount: float
    fee: float
    answer: Answer

    @property
    def ident(self) -> Json:
        """The transaction_id of its result."""
        return (self.answer.json_object() or {}).get("transaction_id")


Step = Callable[[list[Money]], Moved | None]


class Accounts:
    """The two accounts of a target, and what can be done with them."""

    def __init__(self, context: Context) -> None:
        """Find the addresses; raise `Skipped` unless there are two."""
        self.context = context
        self.of: tuple[Credential, Credential] = (context.target.valid, context.target.second)
        found = [read_money(context, one).document.get("address") for one in self.of]
        if context.target.second_token is None or None in found or found[0] == found[1]:
            raise Skipped("there are no two accounts")
        self.addresses = found
        self.sent = list[Sent]()
        self.settled_s = list[float]()
        """How long each step took until the balances showed it."""
        self.waited_s = list[float]()
        """How long was waited for those that they did not show."""
        self.drawn = 0
        self._source = random.Random(context.target.seed)  # noqa: S311
        self._least = 0.0

    @property
    def patience_s(self) -> float:
        """How long to wait until the balances show a step."""
        if len(self.settled_s) < KNOWN:
            return wallet.LISTED_WITHIN_S
        return min(wallet.LISTED_WITHIN_S, max(LEAST_S, TIMES * max(self.settled_s)))

    def steps(self) -> Iterator[Step]:
        """Draw the steps: each kind once, in any order, then some of them again, `drawn` in all.

        Behind these come pairs, in which each kind that changes something follows each other one.
        A step that is made once more is the same again, amounts and all.
        """
        kinds: dict[str, Step] = {
            "first to second": lambda had: self._send(had, 0, 1, SENT),
            "a little to the second": lambda had: self._send(had, 0, 1, TINY),
            "second to first": lambda had: self._send(had, 1, 0, (*TINY, *SENT)),
            "second to itself": lambda had: self._send(had, 1, 1, SENT),
            "first to itself": lambda had: self._send(had, 0, 0, SENT),
            "two transfers at the same time": self._send_two,
            "stake": self._stake,
            "unstake": self._unstake,
            "generations": lambda had: self._generate(had, {"stop": []}),
            "generations that end early": lambda had: self._generate(had, {"stop": [*"eao "]}),
            "a transfer beside a generation": self._send_beside,
            "a stream": self._stream,
            "a generation": self._generation,
            "the same generation again": self._repeat,
            "too much": self._too_much,
            "a stake of a little too much": self._little_too_much,
            "a transfer of nobody": lambda had: self._by_nobody(had, SEND),
            "a stake of nobody": lambda had: self._by_nobody(had, STAKE),
            "a bad body": self._bad_body,
            "a bad memo": lambda had: self._bad(SEND, "memo"),
        }
        names = self._source.sample(list(kinds), len(kinds))
        # What is pending makes a difference for what follows it.
        names += ["stake", *self._source.choices(list(kinds), k=MORE)]
        self.drawn = len(names)
        names += every_pair(PAIRED, self._source)
        for name, seed in [(name, self._source.random()) for name in names]:
            yield partial(self._from, seed, kinds[name])

    def _from(self, seed: float, step: Step, had: list[Money]) -> Moved | None:
        self._source = random.Random(seed)  # noqa: S311
        return step(had)

    def _post(self, path: str, body: Json, account: Credential) -> Answer:
        if self.context.budget.left < AMOUNT:
            raise self.context.budget.used_up()
        return self.context.api("POST", path, credential=account, json_body=body)

    def _send_two(self, had: list[Money]) -> Moved | None:
        """Send to the first account and to the sender itself at the same moment."""
        first, second = self._source.sample(PARTS, 2)
        if 3 * (first + second) >= had[1].available:
            return None
        asked = ((0, first), (1, second))
        many, gate = len(asked), self.context.http.gate
        with gate.holding(many), ThreadPoolExecutor(many) as pool:
            answers = list(pool.map(lambda one: self._transfer(1, *one), asked))
        made = [
            self._sent(1, to, amount, answer)
            for (to, amount), answer in zip(asked, answers, strict=True)
        ]
        if None in made:
            # A node may have room for one at a time.
            return None
        changes = [one.available for one in made if one is not None]
        # The fees of both, and the amount of the one that leaves the account.
        change = [
            (sum(one[at][0] for one in changes), sum(one[at][1] for one in changes))
            for at in range(len(self.of))
        ]
        what = f"transfers of {first:g} to the first account and {second:g} to itself at once"
        return Moved(f"{what} of the second account", answers, change)

    def _transfer(self, sender: int, to: int, amount: float) -> Answer:
        body: Json = {"to": self.addresses[to], "amount": amount, "memo": MEMO}
        return self._post(SEND, body, self.of[sender])

    def _send(
        self, had: list[Money], sender: int, to: int, amounts: Sequence[float]
    ) -> Moved | None:
        amount = self._source.choice([a for a in amounts if 3 * a < had[sender].available] or [0.0])
        answer = self._transfer(sender, to, amount) if amount else None
        return None if answer is None else self._sent(sender, to, amount, answer)

    def _sent(self, sender: int, to: int, amount: float, answer: Answer) -> Moved | None:
        """Return what a transfer may have changed; None if it was not made."""
        result = answer.json_object() if answer.ok else None
        if result is None or result.get("success") is False:
            return None
        named = result.get("from")
        why = f"from is {brief(named)} for a transfer of {brief(self.addresses[sender])}"
        self.context.judge("NA-WALLET-013", named in (self.addresses[sender], None), why, answer)
        shown = result.get("fee")
        fee = float(shown) if is_number(shown) else 0.0
        self.context.budget.charge(fee)
        change = [FREE, FREE]
        # A fee of the operator's own may come back to him.
        change[sender] = (-amount - fee, -amount - fee if sender else -amount)
        if to == sender:
            # Itself it costs at most the fee.
            change[sender] = (-fee, 0.0)
        else:
            change[to] = (amount, amount)
        self.sent.append(Sent(sender, str(self.addresses[to]), amount, fee, answer))
        if sender == 1:
            change[0] = (change[0][0], change[0][1] + fee)
        names = ("the first", "the second")
        what = f"{amount:g} from {names[sender]} account to {names[to] if to != sender else 'it'}"
        what = f"a transfer of {what}, with a fee of {fee:g},"
        return Moved(what, [answer], change, settled=True)

    def _stake(self, had: list[Money]) -> Moved | None:
        for amount in (a for a in STAKES if self._least <= a < had[1].available / 2):
            if amount > self.context.budget.left:
                return None
            # The same with more decimals, where so much was accepted before.
            odd = round(amount + 0.0137, 4) if self._least else amount
            answer = self._post(STAKE, {"amount": odd, "duration_days": DAYS}, self.of[1])
            result = answer.json_object() or {}
            if answer.ok and result.get("success") is True:
                self._least = amount
                self.context.budget.charge(odd)
                told = {
                    key: float(found[0]) for key in ("available", "staked")
                    if (found := lookup(result, f"new_balance.{key}")) and is_number(found[0])
                }  # fmt: skip
                change = [(0.0, STAKING), (-odd - STAKING, -odd)]
                return Moved(f"a stake of {odd:g}", [answer], change, odd, told)
        return None

    def _unstake(self, had: list[Money]) -> Moved | None:
        amount = round(min(self._source.choice(PARTS), had[1].staked / 2), 5)
        if amount <= EXACT:
            return None
        answer = self._post(UNSTAKE, {"amount": amount}, self.of[1])
        if answer.ok and (answer.json_object() or {}).get("success") is True:
            # What a part of a stake is free at once is not said.
            change = [(0.0, STAKING), (-STAKING, amount)]
            return Moved(f"an unstake of {amount:g}", [answer], change, -amount)
        return self._refused(f"a refused unstake of {amount:g}", answer)

    def _cost(self, answer: Answer) -> float | None:
        found = lookup(answer.json_object() or {}, "cost.amount") if answer.ok else []
        return float(found[0]) if found and is_number(found[0]) else None

    def _generate(self, had: list[Money], more: dict[str, Json]) -> Moved | None:
        """Let both accounts generate at the same time, one of them more than the other."""

        def ask(maker: int) -> Answer:
            body: Json = {"prompt": "Once upon a time", "max_tokens": (24, 60)[maker], **more}
            return self.context.infer(body, credential=self.of[maker])

        with self.context.http.gate.holding(2), ThreadPoolExecutor(2) as pool:
            answers = list(pool.map(ask, (0, 1)))
        costs = [cost for answer in answers if (cost := self._cost(answer)) is not None]
        if len(costs) < len(answers):
            return None
        # What is earned by generating goes to somebody, too.
        change = [(-cost, math.inf) for cost in costs]
        made = " and ".join(f"{cost:g}" for cost in costs)
        return Moved(f"generating at the same time, at costs of {made},", answers, change)

    def _send_beside(self, had: list[Money]) -> Moved | None:
        """Send to the first account while a text of the second one is made."""
        body: Json = {"prompt": "Once upon a time", "max_tokens": 60}
        amount = self._source.choice(PARTS)
        if 3 * amount >= had[1].available:
            return None
        with ThreadPoolExecutor(1) as pool:
            making = pool.submit(self.context.infer, body, credential=self.of[1])
            time.sleep(HEADSTART_S)
            sent = self._transfer(1, 0, amount)
            made = making.result()
        moved, cost = self._sent(1, 0, amount, sent), self._cost(made)
        if moved is None or cost is None:
            return None
        first, second = moved.available
        # A node may name a cost and take none.
        moved.available = [(first[0], math.inf), (second[0] - cost, second[1])]
        moved.answers = [made, sent]
        moved.settled = False
        moved.what = f"a transfer of {amount:g} while a text was made that costs {cost:g}"
        return moved

    def _stream(self, had: list[Money]) -> Moved | None:
        body: Json = {"prompt": "Once upon a time", "max_tokens": 24, "stream": True}
        answer = self.context.infer(body, credential=self.of[1])
        change = [(0.0, math.inf), (-math.inf, math.inf)]
        return Moved("a stream of the second account", [answer], change) if answer.ok else None

    def _generation(self, had: list[Money]) -> Moved | None:
        body: Json = {"prompt": "Once upon a time", "max_tokens": 8}
        answer = self.context.infer(body, credential=self.of[1])
        cost = self._cost(answer)
        if cost is None:
            return None
        # Whether it is taken each time is judged in all answers of the run together.
        change = [(0.0, math.inf), (-cost, math.inf)]
        return Moved(f"a generation that costs {cost:g}", [answer], change, settled=True)

    def _repeat(self, had: list[Money]) -> Moved | None:
        """Generate twice alike; the second one costs what it says where the first one did."""
        body: Json = {"prompt": f"Once upon a time {self._source.random():.4f}", "max_tokens": 24}
        first = self.context.infer(body, credential=self.of[1])
        between = read_money(self.context, self.of[1])
        second = self.context.infer(body, credential=self.of[1])
        costs = self._cost(first), self._cost(second)
        if costs[0] is None or costs[1] is None or costs[0] <= EXACT:
            return None
        if abs(had[1].available - between.available - costs[0]) > EXACT:
            # A charge is not settled at once.
            return None
        change = [(0.0, math.inf), (-costs[0] - costs[1], -costs[0] - costs[1] / 2)]
        what = f"generating twice alike, at costs of {costs[0]:g} and {costs[1]:g},"
        return Moved(what, [first, between.answer, second], change)

    def _refused(self, what: str, answer: Answer) -> Moved | None:
        inside = answer.ok and (answer.json_object() or {}).get("success") is False
        if inside or 400 <= answer.status < 500:
            return Moved(f"{what} (status {answer.status})", [answer], [FREE, FREE], settled=True)
        return None

    def _too_much(self, had: list[Money]) -> Moved | None:
        path = self._source.choice((SEND, STAKE))
        if self.context.edition >= SEVENTH:
            # A stake of too much has a step of its own.
            path = SEND
        body = self._body(path, float(math.floor(had[1].available) + EXCESS))
        return self._refused(f"too much on {path}", self._post(path, body, self.of[1]))

    def _little_too_much(self, had: list[Money]) -> Moved | None:
        # By less than a unit or than is pending, and by more than a rounding or a fee.
        pending = had[1].pending / 2
        more = pending if LITTLE < pending < PLENTY else PLENTY
        amount = round(had[1].available + more, 2 if more == PLENTY else 5)
        answer = self._post(STAKE, self._body(STAKE, amount), self.of[1])
        after = read_money(self.context, self.of[1])
        income = after.available + after.staked - had[1].available - had[1].staked
        if answer.ok and after.staked >= had[1].staked + amount - EXACT and income <= EXACT:
            why = f"a stake of {amount:g} is made of {had[1].available:g} that are available"
            self.context.fails("NA-ERR-022", why, had[1].answer, answer, after.answer)
            raise Skipped("the account has staked more than it had")
        return self._refused("a stake of a little too much", answer)

    def _by_nobody(self, had: list[Money], path: str) -> Moved | None:
        body = self._body(path, max(self._least, AMOUNT))
        return self._refused(f"{path} with a token of nobody", self._post(path, body, INVENTED))

    def _bad_body(self, had: list[Money]) -> Moved | None:
        path = self._source.choice((SEND, STAKE, UNSTAKE))
        return self._bad(path, self._source.choice(sorted(self._body(path, AMOUNT))))

    def _bad(self, path: str, key: str) -> Moved | None:
        good = self._body(path, max(self._least, AMOUNT))
        body = {**good, key: self._source.choice(([good[key]], {"value": good[key]}))}
        account = self._source.choice(self.of)
        return self._refused(f"{brief(body)} on {path}", self._post(path, body, account))

    def _body(self, path: str, amount: float) -> dict[str, Json]:
        if path == SEND:
            return {"to": self.addresses[0], "amount": amount, "memo": MEMO}
        return {"amount": amount, "duration_days": DAYS} if path == STAKE else {"amount": amount}
