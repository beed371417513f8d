"""Interface 2.1, 3 and 4.1: what a node says after a restart, which the operator's command makes.

The document names one thing that a restart brings about: a change that needs one is in force
after it. What else outlives a process is good sense. Nothing is shown where uptime_seconds goes on.
"""

import subprocess
import time
from dataclasses import dataclass, field

from conformance.catalogue import Effect
from conformance.checks.config import changeable, flat, nested, patch, read_config, restore
from conformance.checks.node_reads import BALANCE, CONFIG, STATUS, TRANSACTIONS
from conformance.checks.reading import fetch
from conformance.context import Context
from conformance.findings import Skipped
from conformance.httpwire import Answer, Unanswered
from conformance.registry import requirement
from conformance.shapes import lookup
from conformance.strictjson import Json, brief, is_int, is_number

# As long as the command, and then the node, may take.
COMMAND_S, READY_S = 120.0, 60.0
AGAIN_S, UPTIME_SLACK_S = 0.5, 3.0
EXACT = 1e-6
STAKE = ("balances.staked", "staking.amount", "staking.unlock_date")


@dataclass
class Told:
    """What a node has said, with the answers that say so."""

    answers: dict[str, Answer] = field(default_factory=dict)
    documents: dict[str, dict[str, Json]] = field(default_factory=dict)

    def values(self, name: str, path: str) -> list[Json]:
        """Return the values at a path of one of the resources."""
        return lookup(self.documents.get(name), path)


def _read(context: Context) -> Told:
    told = Told()
    for resource in (STATUS, BALANCE, TRANSACTIONS):
        answer, document = fetch(context, resource)
        if document is not None:
            told.answers[resource.name] = answer
            told.documents[resource.name] = document
    return told


@dataclass(frozen=True)
class Change:
    """A change of the configuration that the node has reported as made."""

    path: str
    value: Json
    needs_restart: bool
    answer: Answer


@requirement("NA-PATCH-111", "NA-PATCH-112", "ST-009", "NA-SANE-022", "NA-WALLET-021")
def restart_kept(context: Context) -> None:
    """Change the configuration if that is allowed, restart the node, and compare what it says."""
    original = read_config(context)
    may_change = context.target.allows(Effect.MUTATE)
    try:
        changes = _changes(context, original) if may_change else []
        before = _read(context)
        _restart(context, before)
        _judge_changes(context, changes)
        _judge_kept(context, before, _read(context))
    finally:
        if may_change:
            restore(context, original)


def _changes(context: Context, original: dict[str, Json]) -> list[Change]:
    """Change each key by itself, and return the changes that the node reports as made."""
    found = []
    for path, near in changeable(original).items():
        if near[0] == flat(original).get(path):
            continue
        answer = patch(context, nested({path: near[0]}))
        result = answer.json_object() or {}
        needs = result.get("restart_required")
        if answer.ok and result.get("success") is True and isinstance(needs, bool):
            found.append(Change(path, near[0], needs, answer))
    return found


def _restart(context: Context, before: Told) -> None:
    """Run the operator's command, and wait for the node; raise `Skipped` without a restart."""
    began = time.monotonic()
    context.service.forget()
    try:
        done = subprocess.run(
            context.target.restart_words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=COMMAND_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Skipped(f"the restart command did not run: {type(error).__name__}") from None
    if done.returncode:
        raise Skipped(f"the restart command ended with status {done.returncode}")
    known = before.values("status", "uptime_seconds")
    shown = bool(known) and is_number(known[0])
    ends = time.monotonic() + READY_S
    # The old process may still answer for a while.
    while (uptime := _uptime(context)) is None or (shown and uptime > _since(began)):
        if time.monotonic() > ends:
            told = "it does not answer" if uptime is None else f"uptime_seconds is {uptime:g}"
            raise Skipped(f"the node has not restarted within {READY_S:g} s: {told}")
        time.sleep(AGAIN_S)
    _wait_for_grpc(context, ends)


def _since(began: float) -> float:
    return time.monotonic() - began + UPTIME_SLACK_S


def _wait_for_grpc(context: Context, ends: float) -> None:
    """Wait until the channel is connected again, for the checks that follow."""
    while context.target.grpc and context.service.reachable and time.monotonic() < ends:
        try:
            context.grpc.call("DHTPing", b"")
            return
        except Unanswered:
            time.sleep(AGAIN_S)


def _uptime(context: Context) -> float | None:
    try:
        answer = context.http.call("GET", "/api/v1/status")
    except Unanswered:
        return None
    found = lookup(answer.json_object() if answer.ok else None, "uptime_seconds")
    return float(found[0]) if found and is_number(found[0]) else None


def _judge_changes(context: Context, changes: list[Change]) -> None:
    answer, document = fetch(context, CONFIG)
    if document is None:
        return
    now = flat(document)
    for change in changes:
        # What needs no restart may be meant for the running process only.
        ident = "NA-PATCH-111" if change.needs_restart else "NA-PATCH-112"
        found = now.get(change.path)
        why = f"{change.path} was set to {brief(change.value)}, and is {brief(found)} afterwards"
        context.judge(ident, found == change.value, why, change.answer, answer)


def _judge_kept(context: Context, before: Told, after: Told) -> None:
    """Compare the identity, the stake and the history with those before the restart."""
    ids = [told.values("status", "node_id") for told in (before, after)]
    if all(ids):
        shown = [told.answers["status"] for told in (before, after)]
        context.judge("NA-SANE-022", ids[0] == ids[1], f"node_id {brief(ids)}", *shown)
    stakes = [[told.values("balance", path) for path in STAKE] for told in (before, after)]
    held = stakes[0][0]
    if held and is_number(held[0]) and held[0] > 0 and "balance" in after.documents:
        shown = [told.answers["balance"] for told in (before, after)]
        same = all(map(_same, stakes[0], stakes[1]))
        context.judge("ST-009", same, f"staking {brief(stakes)}", *shown)
    listed = [told.values("transactions", "transactions[].id") for told in (before, after)]
    totals = [told.values("transactions", "total") for told in (before, after)]
    if listed[0] and all(found and is_int(found[0]) for found in totals):
        # New entries may have pushed old ones to the next page.
        grown = totals[1][0] - totals[0][0]
        lost = [ident for ident in listed[0][: len(listed[0]) - max(grown, 0)]
                if ident not in listed[1]]  # fmt: skip
        why = f"total went from {totals[0][0]} to {totals[1][0]}, without {brief(lost)}"
        shown = [told.answers["transactions"] for told in (before, after)]
        context.judge("NA-WALLET-021", grown >= 0 and not lost, why, *shown)


def _same(one: list[Json], other: list[Json]) -> bool:
    if one and other and is_number(one[0]) and is_number(other[0]):
        return bool(abs(one[0] - other[0]) <= EXACT)
    return one == other
