"""What a check works with: the target, its clients, the budget and the findings.

Invariant: spending stops once the budget is used up.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from conformance import passive
from conformance.editions import SEVENTH, SIXTH
from conformance.findings import USED_UP, Findings, Skipped
from conformance.grpcwire import GrpcClient, Reply
from conformance.httprequest import ANONYMOUS, USUAL, Asked, Credential, Written
from conformance.httpwire import Answer, HttpClient, Unanswered
from conformance.passive import resources
from conformance.passive.heard import Heard, ids
from conformance.peer.peer import Peer
from conformance.shapes import lookup
from conformance.strictjson import Json, is_int, is_number
from conformance.target import Target, documented_grpc_address

API = "/api/v1"
BALANCE, AVAILABLE = "/wallet/balance", "balances.available"
# A cost so many times as large as what was taken is in another unit.
OTHER_UNIT = 10
CHANGE, STEPS = ("PATCH", f"{API}/config"), "training.diloco_steps"


def _is_page(query: Mapping[str, object] | None) -> bool:
    """Whether the values of a query are such as the document names: whole numbers from 0 on."""
    return all(is_int(value) and value >= 0 for value in (query or {}).values())


class Budget:
    """What spending checks may still spend, in whole units of the currency."""

    def __init__(self, limit: float) -> None:
        """Start with nothing spent."""
        self.limit = limit
        self.spent = 0.0
        self._per_token = 0.0

    def charge(self, amount: float, tokens: int = 0) -> None:
        """Count a cost that the target reported, for an output of this many tokens."""
        self.spent += max(amount, 0.0)
        if tokens > 0:
            self._per_token = max(self._per_token, amount / tokens)

    def charge_stream(self, tokens: int) -> None:
        """Count a stream, which reports no cost, at the highest price per token seen so far."""
        self.spent += tokens * self._per_token

    @property
    def left(self) -> float:
        """The amount that may still be spent."""
        return max(self.limit - self.spent, 0.0)

    def used_up(self) -> Skipped:
        """Return why a check that would spend is not run."""
        return Skipped(f"{USED_UP} {self.limit:g} is used up")

    @property
    def exhausted(self) -> bool:
        """Whether nothing more may be spent."""
        return self.spent > self.limit


class Service:
    """What one run knows of the gRPC service as a whole, so that one fault is reported once."""

    def __init__(self) -> None:
        """Begin without knowing anything."""
        self.reachable = False
        # Whether the service has its documented name; None while nothing has shown it.
        self.named: bool | None = None
        self.running: bool | None = None
        # The node's own ID in the DHT; empty if it gives none.
        self.node_id: bytes | None = None
        # A forward pass that the node accepts, or why none is known, and how it was looked for.
        self.found_pass: dict[str, Any] | None = None
        self.no_pass: str | None = None
        self.tries: list[Reply] = []
        # The form of sender_url with which gradients come back to the suite; empty if none does.
        self.sender_urls: tuple[str, ...] | None = None
        # Whether they came to its HTTP port instead, for a URL of HTTP.
        self.at_http = False
        # A gradient that the node accepts, or why none is known.
        self.found_gradient: dict[str, Any] | None = None
        self.no_gradient: str | None = None
        # What shows that none is accepted behind a refusal, where that is so.
        self.shut: tuple[Reply, ...] = ()
        # The fields of those that were tried.
        self.tried_gradients: list[dict[str, Any]] = []
        # Whether gradients have another shape than what a pass answers with first, the hidden
        # states or else the logits; None while none was accepted.
        self.other_gradients: bool | None = None
        # The IDs of the signed requests that the run has broadcast.
        self.broadcast: list[str] = []
        # A signed request that is to expire, or why there is none.
        self.unanswered: Any = None
        # One that was completed, and the answer that showed it first.
        self.completed: Any = None
        # Whether another one has been paid since.
        self.paid = False
        # The first stake of each account that was accepted, and its amount.
        self.staked: dict[Credential, tuple[Answer, float]] = {}
        # When the node was seen first, by the suite's clock, and its uptime then, in seconds.
        self.ran: tuple[float, int] | None = None
        # The configuration that the run has read first.
        self.configured: dict[str, Json] | None = None
        # Whether the suite has changed how many steps a round has.
        self.steps_changed = False
        # What was available to an account when its balance was read last.
        self.available: dict[Credential, float] = {}
        # The accounts that were looked at before their first generation.
        self.looked_at: set[Credential] = set()
        # Whether costs may be in another unit than balances: before the first one, and if they are.
        self.other_unit = True
        # What all answers have said so far.
        self.heard = Heard()
        # Whether the node has been started again in this run.
        self.restarted = False

    def forget(self) -> None:
        """Forget what a node that starts again need not know, or counts anew."""
        self.ran, self.restarted = None, True
        self.heard.forget()

    def blame_unreachable(self, context: "Context", reason: Unanswered) -> bool:
        """Return whether a call failed because nothing has ever answered on the gRPC port.

        Only the check that owns the requirement about the port rules on it.
        """
        silent = reason.why.startswith("unreachable") and not self.reachable
        documented = context.target.grpc == documented_grpc_address(context.target.url)
        if context.target.edition == 1 or not silent or reason.exchange.kind != "grpc":
            return False
        if not documented or not self._answers_http(context):
            return False
        if context.may_rule_on(PORT):
            context.fails(PORT, reason.why, reason)
        return True

    def _answers_http(self, context: "Context") -> bool:
        """Return whether the target runs at all; asks once in a run."""
        if self.running is None:
            try:
                context.http.call("GET", API + "/status")
                self.running = True
            except Unanswered:
                self.running = False
        return self.running


# The requirement that a gRPC server answers on the documented port.
PORT = "GEN-002"


class Context(Findings):
    """The target, the clients and the findings of one check."""

    def __init__(
        self,
        check: str,
        proves: frozenset[str],
        target: Target,
        http: HttpClient,
        grpc: GrpcClient | None,
        budget: Budget,
        residue: list[str],
        service: Service,
        peer: Peer | None = None,
    ) -> None:
        """`residue` collects what a check could not restore. `peer` is the suite's own node."""
        # Every answer is also judged by the passive checks.
        super().__init__(check, proves | passive.PROVES | ids(target.edition), target.edition)
        self.target = target
        self.http = http
        self._grpc = grpc
        self.budget = budget
        self.residue = residue
        self.service = service
        self._peer = peer

    def beside(self, check: str, proves: frozenset[str], target: Target | None = None) -> "Context":
        """Return a context in which another check can run, with the clients of this one."""
        return Context(
            check, proves, target or self.target, self.http, self._grpc, self.budget, self.residue,
            self.service, self._peer,
        )  # fmt: skip

    @property
    def peer(self) -> Peer:
        """The suite's own node; the check is skipped if the run has none."""
        if self._peer is None:
            raise Skipped("the suite runs no peer in this run")
        return self._peer

    @property
    def exchanges_made(self) -> int:
        """The number of exchanges so far, which is also the number of the latest one."""
        return self.http.exchanges_made

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
        written: Written = USUAL,
    ) -> Answer:
        """Send a request to the node API; the passive checks judge its answer.

        `stream` means that the answer need not be JSON.
        """
        answer = self.http.call(
            method,
            prefix + path,
            credential=credential,
            json_body=json_body,
            content=content,
            query=query,
            timeout_s=timeout_s,
            written=written,
        )
        passive.judge_answer(self, answer, stream=stream)
        if _is_page(query):
            asked = json_body if method == "POST" else query
            self._judge_known((method, prefix + path), credential, json_body, asked, answer)
        return answer

    def kept(self, asked: Sequence[Asked]) -> list[Answer]:
        """Send requests on one connection, as `HttpClient.kept` does; judge each as any other."""
        answers = self.http.kept(asked)
        for (method, path, credential, body), answer in zip(asked, answers, strict=False):
            plain, streams = not isinstance(body, bytes), lookup(body, "stream") == [True]
            if path.startswith(API) or "/training/" in path:
                passive.judge_answer(self, answer, stream=streams)
            if self.edition >= SIXTH and plain and not streams and "?" not in path:
                self._judge_known((method, path), credential, body, body, answer)
        return answers

    def _judge_known(
        self, operation: tuple[str, str], credential: Credential, body: Json, asked: Any,
        answer: Answer,
    ) -> None:  # fmt: skip
        """Rule on the answer to a request that the document shows; `asked` is its query or body."""
        _, path = operation
        if self.edition < resources.SINCE or not self._is_known(credential, path):
            return
        if operation == CHANGE and lookup(body, STEPS):
            self.service.steps_changed = True
        changed = self.service.steps_changed
        resources.judge_resource(self, operation, body, answer, changed=changed)
        operator = credential != self.target.second
        self.service.heard.judge(self, operation, credential, asked, answer, operator=operator)
        if path == API + BALANCE and (found := lookup(answer.json_object() or {}, AVAILABLE)):
            self.service.available[credential] = float(found[0]) if is_number(found[0]) else 0.0

    def judge_reply(self, reply: Reply) -> None:
        """Rule on an answer over gRPC, by itself and beside those before it."""
        self.service.heard.judge_reply(self, reply)

    def _is_known(self, credential: Credential, path: str) -> bool:
        """Whether a request with this credential is one that the document shows."""
        return path in resources.OPEN or credential in (self.target.valid, self.target.second)

    @property
    def grpc(self) -> GrpcClient:
        """The gRPC client; the check is skipped if the target declares no gRPC address."""
        if self._grpc is None:
            raise Skipped("the target declares no gRPC address")
        return self._grpc

    def infer(self, body: Json, *, credential: Credential | None = None) -> Answer:
        """Send POST /inference within the budget, and count its cost."""
        if self.budget.exhausted:
            raise self.budget.used_up()
        account = credential or self.target.valid
        known = self._is_known(account, API + "/inference")
        if self.edition >= SEVENTH and known and account not in self.service.looked_at:
            # What it has before its first generation; see `_taken`.
            self.service.looked_at.add(account)
            self.api("GET", BALANCE, credential=account)
        answer = self.api(
            "POST",
            "/inference",
            credential=account,
            json_body=body,
            timeout_s=self.target.inference_timeout_s,
            stream=isinstance(body, dict) and body.get("stream") is True,
        )
        if self.edition >= resources.SINCE and known:
            resources.judge_inference(self, body, answer)
            self.service.heard.judge_generation(self, account, body, answer)
        if answer.json_object() is None:
            self.budget.charge_stream(answer.body.count(b"data:"))
            return answer
        result = answer.json_object() or {}
        cost, tokens = result.get("cost"), result.get("tokens_generated")
        amount = cost.get("amount") if isinstance(cost, dict) else None
        if is_number(amount):
            taken = self._taken(float(amount), account)
            self.budget.charge(taken, int(tokens) if is_int(tokens) else 0)
        return answer

    def _taken(self, cost: float, account: Credential) -> float:
        """Return what a generation has taken, as far as the run may lose it.

        That is its cost. The first one, and any that would end the run's spending, is looked for in
        the balance, since a node may write it in another unit: then that much is missing there
        which was taken.
        """
        known = self.service.available.get(account)
        doubtful = self.edition >= SEVENTH and cost > 0 and self.service.other_unit
        if (cost <= self.budget.left and not doubtful) or known is None:
            return cost
        answer = self.api("GET", BALANCE, credential=account)
        found = lookup(answer.json_object() or {}, AVAILABLE)
        missing = known - float(found[0]) if found and is_number(found[0]) else 0.0
        self.service.other_unit = 0 < OTHER_UNIT * missing < cost
        return missing if self.service.other_unit else cost
