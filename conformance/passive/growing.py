"""Interface 2.1 and 4.1: figures that only grow in a run, and facts that stay what they are.

A figure is compared with that of an answer which was complete before the request was sent, so that
answers under way at the same time say nothing. A prompt has its tokens whatever else is asked for.
"""

import threading
from collections import Counter
from dataclasses import dataclass, field

from conformance.editions import SEVENTH
from conformance.findings import Findings
from conformance.httpwire import Answer
from conformance.journal import Exchange
from conformance.passive.events import is_final
from conformance.shapes import lookup
from conformance.sse import read
from conformance.strictjson import Json, brief, is_int, is_number

COUNTED, COUNTED_ELSE, OF_TRAINING = "NA-SANE-060", "NA-SANE-061", "TR-RULE-030"
STAYS, RETURNS, READ, ACCEPTED = "NA-SANE-062", "NA-SANE-063", "NA-INF-060", "NA-SANE-048"
UNIT = "NA-SANE-043"
IDS = frozenset({COUNTED, COUNTED_ELSE, OF_TRAINING, STAYS, RETURNS, READ, ACCEPTED, UNIT})
# What is counted from a node's start on, by the resource that shows it.
COUNTS: dict[str, dict[str, tuple[str, ...]]] = {
    "metrics": {
        COUNTED: ("inference.requests_total", "inference.tokens_generated"),
        COUNTED_ELSE: (
            "training.steps_total", "training.gradients_submitted",
            "training.gradients_accepted", "network.bytes_sent", "network.bytes_received",
            "network.rpc_calls", "rewards.earned_total",
        ),
    },
    "training-global": {OF_TRAINING: ("local.training_rounds", "diloco.outer_step_count")},
}  # fmt: skip
FIXED: dict[str, tuple[str, ...]] = {"status": ("version",), "config": ("port", "grpc_port")}
# What may change once, but hardly back and forth.
SLOW: dict[str, tuple[str, ...]] = {
    "status": ("role",),
    "config": ("tracker_url",),
    "network": ("architecture.layers", "architecture.hidden_dim", "architecture.parameters"),
    "layers": ("total_layers", "my_layer_count"),
}
# It was one value, another, the first one again, and the other one again.
BACK_AND_FORTH = 4
# So often a value comes back from others, which need not be the same ones.
OFTEN = 3
# An average that is as many times what the slowest generation took is in another unit.
FAR_ABOVE = 20
# And of which the run has made at least one in so many.
MOSTLY = 2
# For a longer text, or more tokens, a model may have to leave some of a prompt out.
SHORT_PROMPT, FEW_TOKENS = 64, 32


@dataclass
class Growing:
    """The highest figures, the values of facts, and the tokens of prompts that were seen so far."""

    highest: dict[str, tuple[float, float, Exchange]] = field(default_factory=dict)
    """With the time at which the answer was complete."""
    facts: dict[str, tuple[Json, Exchange]] = field(default_factory=dict)
    turns: dict[str, list[Json]] = field(default_factory=dict)
    values: dict[str, list[Json]] = field(default_factory=dict)
    """All that each fact has turned to, of which so many were there before:"""
    returns: Counter[str] = field(default_factory=Counter)
    prompts: dict[str, tuple[int, Exchange]] = field(default_factory=dict)
    generated: int = 0
    slowest_ms: float = 0.0
    all_ms: float = 0.0
    """How many generations the run has made, and how long the slowest and all of them took."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def judge(self, findings: Findings, resource: str, answer: Answer) -> None:
        """Rule on the figures and facts of a resource, given all answers before it."""
        document = answer.json_object() if answer.ok else None
        if document is None:
            return
        if resource == "metrics":
            judge_gradients(findings, document, answer)
            self._judge_latency(findings, document, answer)
        with self.lock:
            for ident, paths in COUNTS.get(resource, {}).items():
                for path in paths:
                    self._judge_count(findings, ident, path, lookup(document, path), answer)
            for path in FIXED.get(resource, ()):
                self._judge_fixed(findings, f"{resource}: {path}", lookup(document, path), answer)
            for path in SLOW.get(resource, ()):
                self._judge_slow(findings, f"{resource}: {path}", lookup(document, path), answer)

    def _judge_count(
        self, findings: Findings, ident: str, path: str, found: list[Json], answer: Answer
    ) -> None:
        if not found or not is_number(found[0]):
            return
        now, exchange = float(found[0]), answer.exchange
        most, ended_s, before = self.highest.get(path, (now, exchange.at_s, exchange))
        if before is not exchange and exchange.at_s >= ended_s:
            why = f"{path} was {most:g}, and is {now:g} in a later answer"
            findings.judge(ident, now >= most, why, before, answer)
        if now > most or before is exchange:
            self.highest[path] = now, exchange.at_s + exchange.took_ms / 1000, exchange

    def _judge_fixed(
        self, findings: Findings, path: str, found: list[Json], answer: Answer
    ) -> None:
        if found:
            known, first = self.facts.setdefault(path, (found[0], answer.exchange))
            if first is not answer.exchange:
                why = f"{path} was {brief(known)}, and is {brief(found[0])}"
                findings.judge(STAYS, found[0] == known, why, first, answer)

    def _judge_slow(self, findings: Findings, path: str, found: list[Json], answer: Answer) -> None:
        turns = self.turns.setdefault(path, [])
        if found and (not turns or turns[-1] != found[0]):
            again = found[0] in turns
            # A value that has not been there before begins anew.
            self.turns[path] = [*turns, found[0]] if again else [*turns[-1:], found[0]]
            every = self.values.setdefault(path, [])
            self.returns[path] += found[0] in every
            every.append(found[0])
        turned = len(self.turns[path]) >= BACK_AND_FORTH
        if findings.edition >= SEVENTH:
            # Or it came back from several others.
            turned = turned or self.returns[path] >= OFTEN
        latest = self.values.get(path, [])[-2 * OFTEN :]
        why = f"{path} goes back and forth: {brief(latest)}"
        if found:
            findings.judge(RETURNS, not turned, why, answer)

    def _judge_latency(self, findings: Findings, metrics: dict[str, Json], answer: Answer) -> None:
        """Rule on the average latency, where most requests that it is of are those of the run."""
        found = [
            lookup(metrics, f"inference.{key}") for key in ("requests_total", "avg_latency_ms")
        ]
        if not all(len(one) == 1 and is_number(one[0]) for one in found):
            return
        total, average = (float(one[0]) for one in found)
        if 0 < total <= self.generated and average > 0:
            why = f"avg_latency_ms is {average:g} for {total:g} requests, none of which took longer"
            why = f"{why} than {self.slowest_ms:g} ms"
            findings.judge(UNIT, average <= FAR_ABOVE * self.slowest_ms, why, answer)
        elif 0 < total <= MOSTLY * self.generated and average > 0:
            mean_ms = self.all_ms / self.generated
            why = f"avg_latency_ms is {average:g} for {total:g} requests; {self.generated} of them"
            why = f"{why} took {mean_ms:.4g} ms on average, and {self.slowest_ms:.4g} at most"
            # An average may be one of the last requests alone.
            held = average <= max(FAR_ABOVE * mean_ms, MOSTLY * self.slowest_ms)
            findings.judge(UNIT, held, why, answer)

    def judge_generation(self, findings: Findings, body: Json, answer: Answer) -> None:
        """Note how long a generation took, and rule on the tokens of its prompt."""
        if answer.ok:
            with self.lock:
                self.generated += 1
                self.slowest_ms = max(self.slowest_ms, answer.exchange.took_ms)
                self.all_ms += answer.exchange.took_ms
        self._judge_prompt(findings, body, answer)

    def _judge_prompt(self, findings: Findings, body: Json, answer: Answer) -> None:
        """Rule on the tokens of a short prompt, in a result or in the last event of a stream."""
        asked = body if isinstance(body, dict) else {}
        prompt, most = asked.get("prompt"), asked.get("max_tokens")
        if not answer.ok or not isinstance(prompt, str) or len(prompt) > SHORT_PROMPT:
            return
        if not is_int(most) or not 0 < most <= FEW_TOKENS:
            return
        result: Json = answer.json_object()
        if asked.get("stream") is True:
            values = [event.value for event in read(answer.body).events]
            result = next((v for v in values[-1:] if isinstance(v, dict) and is_final(v)), None)
        found = lookup(result, "usage.prompt_tokens")
        if not found or not is_int(found[0]):
            return
        with self.lock:
            known, first = self.prompts.setdefault(prompt, (int(found[0]), answer.exchange))
        if first is not answer.exchange:
            why = f"prompt_tokens of {brief(prompt)} was {known}, and is {found[0]}"
            findings.judge(READ, found[0] == known, why, first, answer)


def judge_gradients(findings: Findings, metrics: dict[str, Json], answer: Answer) -> None:
    """Rule on the gradients that the metrics count as accepted, beside all that were submitted."""
    found = [lookup(metrics, f"training.gradients_{name}") for name in ("accepted", "submitted")]
    if all(len(one) == 1 and is_int(one[0]) for one in found):
        accepted, submitted = (int(one[0]) for one in found)
        why = f"gradients_accepted is {accepted}, gradients_submitted {submitted}"
        findings.judge(ACCEPTED, accepted <= submitted, why, answer)
