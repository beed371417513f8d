"""What a check works with: the clients of one target, and the place where it puts its findings.

Invariants: a check rules only on what it declares; spending stops when the budget is used up.
"""

from conformance import passive
from conformance.exploration import Skipped
from conformance.grpcwire import GrpcClient, Reply
from conformance.httpwire import ANONYMOUS, Answer, Credential, HttpClient, Unanswered
from conformance.journal import Exchange
from conformance.registry import Check
from conformance.strictjson import Json, is_int, is_number
from conformance.target import Target
from conformance.verdict import Finding, Ruling

API = "/api/v1"
Shown = Answer | Reply | Exchange | Unanswered


class Undeclared(Exception):
    """A check ruled on a requirement that it does not declare: a fault of the suite."""


class Budget:
    """What spending checks may still spend, in whole units of the currency."""

    def __init__(self, limit: float) -> None:
        """Nothing is spent yet."""
        self.limit = limit
        self.spent = 0.0
        self._per_token = 0.0

    def charge(self, amount: float, tokens: int = 0) -> None:
        """Count what the target said that an output of so many tokens cost."""
        self.spent += max(amount, 0.0)
        if tokens > 0:
            self._per_token = max(self._per_token, amount / tokens)

    def charge_stream(self, tokens: int) -> None:
        """Count a stream, which names no cost, at the highest price per token seen so far."""
        self.spent += tokens * self._per_token

    @property
    def left(self) -> float:
        """Give what may still be spent."""
        return max(self.limit - self.spent, 0.0)

    @property
    def exhausted(self) -> bool:
        """Tell whether nothing more may be spent."""
        return self.spent > self.limit


class Context:
    """The clients, the target and the findings of one check."""

    def __init__(
        self,
        check: Check,
        target: Target,
        http: HttpClient,
        grpc: GrpcClient | None,
        budget: Budget,
        residue: list[str],
    ) -> None:
        """`residue` collects what a check could not put back."""
        self.check = check
        self.target = target
        self.http = http
        self._grpc = grpc
        self.budget = budget
        self.residue = residue
        self.findings: list[Finding] = []

    # -- findings ---------------------------------------------------------------------------

    def _find(self, ruling: Ruling, ident: str, message: str, shown: tuple[Shown, ...]) -> None:
        if ident not in self.check.proves and ident not in passive.PROVES:
            raise Undeclared(f"{self.check.name} ruled on {ident}")
        numbers = tuple(_exchange(item).number for item in shown)
        self.findings.append(Finding(ident, ruling, message, numbers, self.check.name))

    def holds(self, ident: str, *shown: Shown) -> None:
        """Find that the requirement holds in these exchanges."""
        self._find(Ruling.HOLDS, ident, "", shown)

    def fails(self, ident: str, why: str, *shown: Shown) -> None:
        """Find that the requirement is broken in these exchanges."""
        self._find(Ruling.FAILS, ident, why, shown)

    def unclear(self, ident: str, why: str, *shown: Shown) -> None:
        """Find that nothing could be found."""
        self._find(Ruling.UNCLEAR, ident, why, shown)

    def observe(self, ident: str, what: str, *shown: Shown) -> None:
        """Report something that is neither right nor wrong."""
        self._find(Ruling.OBSERVED, ident, what, shown)

    def judge(self, ident: str, held: bool, why: str, *shown: Shown) -> bool:
        """Find that the requirement holds or, for the reason `why`, fails; give `held`."""
        if held:
            self.holds(ident, *shown)
        else:
            self.fails(ident, why, *shown)
        return held

    @property
    def exchanges_made(self) -> int:
        """Give the number of exchanges so far, which is that of the latest one."""
        return self.http.exchanges_made

    def ruled_on(self) -> set[str]:
        """Give the ids that have any finding."""
        return {finding.requirement for finding in self.findings}

    # -- exchanges --------------------------------------------------------------------------

    def api(
        self,
        method: str,
        path: str,
        *,
        credential: Credential = ANONYMOUS,
        json_body: Json = None,
        content: bytes | None = None,
        query: dict[str, object] | None = None,
        timeout_s: float | None = None,
        prefix: str = API,
        stream: bool = False,
    ) -> Answer:
        """Send a request to the node API; the passive checks look at its answer.

        `stream` says that the answer need not be JSON.
        """
        answer = self.http.call(
            method,
            prefix + path,
            credential=credential,
            json_body=json_body,
            content=content,
            query=query,
            timeout_s=timeout_s,
        )
        passive.judge_answer(self, answer, stream=stream)
        return answer

    @property
    def grpc(self) -> GrpcClient:
        """Give the gRPC client; checks that use it need `grpc`."""
        if self._grpc is None:
            raise Skipped("the target declares no gRPC address")
        return self._grpc

    def infer(self, body: Json, *, credential: Credential | None = None) -> Answer:
        """Send POST /inference within the budget, and count what it cost."""
        if self.budget.exhausted:
            raise Skipped(f"the budget of {self.budget.limit:g} is used up")
        answer = self.api(
            "POST",
            "/inference",
            credential=credential or self.target.valid,
            json_body=body,
            timeout_s=self.target.inference_timeout_s,
            stream=isinstance(body, dict) and body.get("stream") is True,
        )
        if answer.json_object() is None:
            self.budget.charge_stream(answer.body.count(b"data:"))
            return answer
        result = answer.json_object() or {}
        cost, tokens = result.get("cost"), result.get("tokens_generated")
        amount = cost.get("amount") if isinstance(cost, dict) else None
        if is_number(amount):
            self.budget.charge(float(amount), int(tokens) if is_int(tokens) else 0)
        return answer


def _exchange(shown: Shown) -> Exchange:
    return shown if isinstance(shown, Exchange) else shown.exchange
