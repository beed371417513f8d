"""What all answers of a run have said: each kind of it, and what rules on the next answer.

Invariant: nothing here sends a request. What one check has asked for is compared with what all the
others have, so a fault that shows in a state is seen by whoever happens to read then.
"""

from collections.abc import Mapping
from typing import Any

from conformance.editions import FIFTH, SIXTH
from conformance.findings import Findings
from conformance.grpcwire import Reply
from conformance.httprequest import Credential
from conformance.httpwire import Answer
from conformance.passive import (
    balances,
    calls,
    chain,
    committed,
    cooling,
    forms,
    growing,
    history,
    itself,
    memory,
    passes,
    resources,
    steady,
    taken,
    tokens,
)
from conformance.strictjson import Json


def ids(edition: int) -> frozenset[str]:
    """Return the requirements that are judged on every answer, whichever check asked for it."""
    if edition < resources.SINCE:
        return frozenset()
    everywhere = resources.ids() | calls.ids() | memory.IDS | tokens.IDS
    everywhere |= chain.IDS | committed.IDS | itself.IDS | steady.IDS | growing.IDS
    later = history.IDS | balances.IDS | taken.IDS | forms.IDS | cooling.IDS
    return everywhere | (later if edition >= SIXTH else frozenset())


class Heard:
    """What a target has said so far."""

    def __init__(self) -> None:
        """Begin with nothing."""
        # Names, ids and routes, over HTTP; what has become of the declared tokens; and what was
        # said last of what stays for long.
        self.memory, self.tokens = memory.Memory(), tokens.Tokens()
        self.steady = steady.Steady()
        self._begin()

    def _begin(self) -> None:
        # What all pages have listed, and what balances and operations have said of money.
        self.lists, self.balances = history.Lists(), balances.Balances()
        self.taken, self.cooling = taken.Taken(), cooling.Cooling()
        # What only grows, or stays as it is.
        self.growing = growing.Growing()
        # What the native API has said of one block, one request or one account, and of all that is
        # committed.
        self.chain, self.committed = chain.Chain(), committed.Committed()
        # The form of each native resource.
        self.forms = forms.Forms()
        # What the answers over gRPC have said of the node itself, and those to passes.
        self.itself, self.passes = itself.Itself(), passes.Passes()

    def forget(self) -> None:
        """Forget what a node that starts again need not know, or counts anew."""
        self.memory.begun = self.memory.made_before = None
        self._begin()

    def judge_resource(
        self, findings: Findings, resource: str, credential: Credential, answer: Answer
    ) -> None:
        """Rule on a resource, given all answers before it."""
        self.memory.judge(findings, resource, credential, answer)
        self.steady.judge(findings, resource, answer)
        if findings.edition >= SIXTH:
            self.growing.judge(findings, resource, answer)

    def judge(
        self,
        findings: Findings,
        operation: tuple[str, str],
        credential: Credential,
        asked: Any,
        answer: Answer,
        *,
        operator: bool,
    ) -> None:
        """Rule on the answer to an operation; `asked` is its body, or the query of a GET.

        An `operator` may get back what he has paid.
        """
        method, path = operation
        resource = resources.RESOURCES.get(operation, "")
        self.judge_resource(findings, resource, credential, answer)
        if findings.edition >= SIXTH:
            own = self.memory.names.get((memory.OF_AN_ACCOUNT, credential), (None,))[0]
            self.lists.judge(findings, resource, (credential, own), asked, answer)
            self.balances.judge(findings, operation, credential, asked, answer)
            self.taken.judge(findings, operation, credential, asked, answer, operator=operator)
            self.cooling.judge(findings, operation, credential, answer)
        if method == "GET" and not asked and findings.edition >= FIFTH:
            self.memory.judge_served(findings, path, answer)
        if credential.header is not None:
            self.tokens.judge(findings, credential, operation, answer)

    def judge_generation(
        self, findings: Findings, credential: Credential, body: Json, answer: Answer
    ) -> None:
        """Rule on the answer to POST /inference, JSON or a stream, beside what `judge` has."""
        self.judge_resource(findings, "inference", credential, answer)
        if findings.edition >= SIXTH:
            self.growing.judge_generation(findings, body, answer)

    def judge_native(
        self, findings: Findings, field_map: Mapping[str, tuple[str, ...]], path: str,
        query: Mapping[str, object], answer: Answer,
    ) -> None:  # fmt: skip
        """Rule on an answer of the native API, whose fields the operator has declared."""
        if findings.edition >= FIFTH:
            self.chain.judge(findings, field_map, path, query, answer)
        if findings.edition >= SIXTH:
            self.committed.judge(findings, field_map, path, query, answer)
            self.forms.judge(findings, path, query, answer)

    def judge_reply(self, findings: Findings, reply: Reply) -> None:
        """Rule on an answer over gRPC."""
        calls.judge_reply(findings, self.passes, reply)
        self.itself.judge(findings, reply)
