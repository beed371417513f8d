"""A run: which checks apply, and what they find.

Invariants: a check that raises an error is a fault of the suite and never a verdict; a time-out
leaves the requirements inconclusive that the check has not ruled on.
"""

import random
import threading
import time
import traceback
from collections.abc import Callable, Container, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from conformance import passive
from conformance.baseline import Baseline
from conformance.catalogue import Effect, Level, Origin, Profile, Requirement, load
from conformance.context import API, Budget, Context, Service
from conformance.editions import SIXTH, as_scored, levels
from conformance.ended import Result, Run
from conformance.findings import Skipped
from conformance.grpcwire import GrpcClient
from conformance.httpwire import Answer, HttpClient, Unanswered
from conformance.idle import Idle
from conformance.journal import Journal
from conformance.peer.peer import Peer
from conformance.registry import Check
from conformance.secrecy import Redactor
from conformance.suite import checks
from conformance.target import Target
from conformance.verdict import OUTCOMES, Finding, Outcome, Ruling, Standing, standing
from conformance.waiting import Underway, Waiting

# The first edition in which an ordinary run judges what comes back to the suite.
CALLED_BACK_SINCE = 4
UNREACHABLE = "no gRPC server answers, which GEN-002 reports"

Progress = Callable[[int, int, str], None]


class Runner:
    """Runs the checks that apply to one target, optionally several reading checks at a time."""

    def __init__(
        self,
        target: Target,
        *,
        log: Path | None = None,
        only: Iterable[str] = (),
        baseline: Baseline | None = None,
        progress: Progress = lambda done, total, name: None,
        parallel: int = 1,
        shuffle: bool = False,
        names: Container[str] | None = None,
        first_violation: bool = False,
        peer: Peer | None = None,
    ) -> None:
        """`only` holds requirement ids; empty means all. `log` is the JSONL file of exchanges.

        `parallel` is the number of reading checks that run at a time; if it is above 1, the others
        run after all of these. `shuffle` runs the checks in an order derived from the target's
        seed, instead of by their effect. `names` holds the checks to run; None means all. With
        `first_violation` the run ends after the first check that finds a MUST violated which the
        baseline does not have. `peer` is a node of the suite that serves already.
        """
        self.target = target
        self.redactor = Redactor(target.secrets)
        self._journal = Journal(self.redactor, log)
        self._only = frozenset(only)
        self._baseline = baseline or Baseline({})
        self._progress = progress
        self._parallel = parallel
        self._shuffle = shuffle
        self._names = names
        self._first_violation = first_violation
        self._peer = peer
        if peer is not None:
            peer.watch.journal = self._journal
        self._clients = threading.local()
        self._opened: list[GrpcClient] = []
        self._idle: list[Idle] = []
        self._budget = Budget(target.budget)
        self._service = Service()
        self._findings: list[Finding] = []
        self._looked_at = 0
        self._faults: dict[str, str] = {}
        self._residue: list[str] = []
        # Why a check did not run or stopped early, by its name.
        self._skipped: dict[str, str] = {}

    def run(self) -> Run:
        """Run all checks; a keyboard interrupt ends the run with the results so far."""
        began = time.monotonic()
        interrupted = False
        chosen = [check for check in checks().values() if self._applies(check)]
        if self._shuffle:
            random.Random(self.target.seed).shuffle(chosen)  # noqa: S311 - an order, no secret
        try:
            self._run_all(chosen)
        except KeyboardInterrupt:
            interrupted = True
        finally:
            for client in self._opened:
                client.close()
            for idle in self._idle:
                idle.end()
            if self._peer is not None:
                self._peer.watch.journal = None
            self._journal.close()
        found: dict[str, list[Finding]] = {}
        for finding in self._findings:
            found.setdefault(finding.requirement, []).append(finding)
        results = [self._result(item, tuple(found.get(item.id, ()))) for item in load().values()]
        exercised = {
            item.requirement.id: item.standing
            for item in results
            if item.standing in (Standing.PROVED, Standing.VIOLATED, Standing.INCONCLUSIVE)
        }
        return Run(
            target=self.target,
            results=results,
            exchanges=self._journal.exchanges,
            faults=self._faults,
            residue=[self.redactor.text(item) for item in self._residue],
            stale=self._baseline.stale(exercised),
            took_s=time.monotonic() - began,
            spent=self._budget.spent,
            interrupted=interrupted,
            redactor=self.redactor,
            skipped=self._skipped,
        )

    def _run_all(self, chosen: list[Check]) -> None:
        done = 0
        together = [check for check in chosen if check.effect is Effect.READ]
        alone = [check for check in chosen if check.effect is not Effect.READ]
        if self._parallel > 1 and together:
            with ThreadPoolExecutor(self._parallel) as pool:
                try:
                    for check, _ in zip(together, pool.map(self._run_check, together), strict=True):
                        done += 1
                        self._progress(done, len(chosen), check.name)
                except KeyboardInterrupt:
                    pool.shutdown(cancel_futures=True)
                    raise
            # In the same order as if the checks had run one after the other.
            order = {check.name: at for at, check in enumerate(chosen)}
            self._findings.sort(key=lambda finding: order[finding.check])
        waiting = Waiting(self._step)
        try:
            for check in alone if done else _waits_first(chosen, shuffled=self._shuffle):
                self._progress(done, len(chosen), check.name)
                if check.effect is Effect.READ or check.pauses:
                    waiting.go_on()
                else:
                    waiting.finish()
                waiting.start(self._begun(check))
                done += 1
                if self._first_violation and self._violated():
                    break
            else:
                waiting.finish()
        finally:
            waiting.close()
        self._progress(len(chosen), len(chosen), "")

    def _violated(self) -> bool:
        """Return whether a finding since the last look violates a MUST."""
        scored = levels(self.target.edition)
        found = any(
            item.ruling is Ruling.FAILS
            and scored.get(item.requirement) is Level.MUST
            and item.requirement not in self._baseline.known
            for item in self._findings[self._looked_at :]
        )
        self._looked_at = len(self._findings)
        return found

    def _own_clients(self) -> tuple[HttpClient, GrpcClient | None]:
        """Return the clients of this thread, so that checks do not affect one another."""
        if not hasattr(self._clients, "http"):
            target, idle = self.target, None
            if target.edition >= SIXTH:
                self._idle.append(idle := Idle(target.seed))
            self._clients.http = HttpClient(
                target.url, self._journal, timeout_s=target.timeout_s, max_wait_s=target.max_wait_s,
                idle=idle,
            )  # fmt: skip
            self._clients.grpc = None
            if target.grpc:
                client = GrpcClient(target.grpc, self._journal, timeout_s=target.timeout_s)
                self._clients.grpc = client
                self._opened.append(client)
        return self._clients.http, self._clients.grpc

    # -- which checks apply -----------------------------------------------------------------

    def _applies(self, check: Check) -> bool:
        if not check.profiles & self.target.profiles and not self._calls_back(check):
            return False
        if self._names is not None and check.name not in self._names:
            return False
        # A passive requirement is judged on every answer, so it selects every check.
        if self._only and not (check.proves | passive.PROVES) & self._only:
            return False
        reason = self._withheld(check.needs, check)
        if reason:
            self._skipped[check.name] = reason
        return not reason

    @property
    def _reached(self) -> frozenset[str]:
        """The `needs` that the suite's own node meets."""
        if self._peer is None:
            return frozenset()
        return frozenset({"peer", "callback"} if self._peer.setup.told else {"callback"})

    def _calls_back(self, check: Check) -> bool:
        """Return whether a check of clients goes without a node that is told of the suite's own."""
        listens = self._peer is not None and self.target.edition >= CALLED_BACK_SINCE
        return listens and "callback" in check.needs

    def _withheld(self, needs: frozenset[str], check: Check) -> str | None:
        missing = needs - self.target.has - self._reached
        if missing:
            return "the target declares no " + " and no ".join(map(_with_option, sorted(missing)))
        if not self.target.allows(check.effect):
            return f"needs --allow {check.effect}"
        return None

    # -- one check --------------------------------------------------------------------------

    def _run_check(self, check: Check) -> None:
        """Run a check from its beginning to its end."""
        waiting = Waiting(self._step)
        waiting.start(self._begun(check))
        waiting.finish()

    def _begun(self, check: Check) -> Underway:
        http, grpc = self._own_clients()
        context = Context(
            check.name, check.proves, self.target, http, grpc, self._budget, self._residue,
            self._service, self._peer,
        )  # fmt: skip
        return Underway(check, context, check.begin(context))

    def _step(self, begun: Underway) -> bool:
        """Go on with a check until it waits or ends; return whether it goes on later."""
        check, context = begun.check, begun.context
        self._enter(check, context)
        try:
            pause_s = next(begun.steps, None)
        except Unanswered as reason:
            if self._service.blame_unreachable(context, reason):
                self._skipped[check.name] = UNREACHABLE
            else:
                for ident in sorted(self._open(check, context)):
                    context.unclear(ident, reason.why, reason.exchange)
        except Skipped as reason:
            self._skipped[check.name] = str(reason)
        except Exception:  # noqa: BLE001 - a fault in one check must not hide the findings of the others
            self._faults[check.name] = self.redactor.text(traceback.format_exc())
        else:
            if pause_s is not None:
                begun.due_s = time.monotonic() + pause_s
                return True
        finally:
            if context.http.idle is not None:
                # No check goes on a connection of another one.
                context.http.idle.close()
        self._findings += context.findings
        return False

    def _enter(self, check: Check, context: Context) -> None:
        """Have the clients name this check, and judge what they see for it."""
        http, grpc = self._own_clients()
        http.check = check.name
        if self._peer:
            self._peer.watch.check = check.name

        def limited(answer: Answer) -> None:
            # An answer to HEAD has no body.
            request = answer.exchange.request
            if API in request["url"] and request["method"] != "HEAD":
                passive.judge_answer(context, answer)

        http.on_limited = limited
        if grpc:
            grpc.check = check.name
            grpc.on_reply = context.judge_reply

    def _open(self, check: Check, context: Context) -> set[str]:
        """Return the requirements of this check on which it has not ruled."""
        own = {item.id for item in check.own if item.level is not Level.OBSERVE}
        return own - context.ruled_on()

    # -- results ----------------------------------------------------------------------------

    def _result(self, requirement: Requirement, found: tuple[Finding, ...]) -> Result:
        scored = as_scored(requirement, self.target.edition)
        requirement = scored or requirement
        stands, reason = self._standing(requirement, found)
        if scored is None and requirement.origin is not Origin.SILENT:
            outcome = Outcome.SKIP if OUTCOMES[stands][requirement.level] is Outcome.SKIP else (
                Outcome.NOTE)  # fmt: skip
            return Result(requirement, stands, outcome, reason, _examples(found), scored=False)
        outcome = OUTCOMES[stands][requirement.level]
        known = outcome is Outcome.FAIL and requirement.id in self._baseline.known
        return Result(requirement, stands, outcome, reason, _examples(found), known)

    def _standing(
        self, requirement: Requirement, found: tuple[Finding, ...]
    ) -> tuple[Standing, str]:
        # What comes back to the suite shows a client, whether or not one was to be judged.
        shown = requirement.profile is Profile.PEER and found
        if requirement.profile not in self.target.profiles and not shown:
            otherwise = f"the target declares no profile {requirement.profile}"
            reason = self.target.absent.get(requirement.profile, otherwise)
            return Standing.NOT_APPLICABLE, reason
        stands = standing(requirement, (item.ruling for item in found))
        if stands is not None:
            reason = "the document does not say" if stands is Standing.SILENT else _why(found)
            return stands, self.redactor.text(reason)
        return Standing.NOT_EXERCISED, self._reason(requirement)

    def _reason(self, requirement: Requirement) -> str:
        if requirement.unchecked:
            return f"unchecked: {requirement.unchecked}"
        if self._only and requirement.id not in self._only:
            return "not selected"
        name = requirement.check or ""
        if name in self._faults:
            return f"the check {name} broke down"
        if name in self._skipped:
            return self.redactor.text(self._skipped[name])
        if requirement.origin is Origin.SILENT:
            return "the document does not say"
        if requirement.shown_when:
            return f"no exchange showed it: shown only {requirement.shown_when}"
        return "no exchange showed it"


def _waits_first(chosen: list[Check], *, shuffled: bool) -> list[Check]:
    """Return the checks in the order of their effect, but for those during which others may run."""
    return chosen if shuffled else sorted(chosen, key=lambda check: not check.pauses)


# Needs whose option is hard to guess from their name.
_OPTIONS = {
    "callback": "--listen HOST:PORT",
    "gradient": "--gradient FILE",
    "peer": "meshnode-conformance peer",
    "restart": "--restart-command CMD",
    "signer": "--signer CMD",
}


def _with_option(need: str) -> str:
    return f"{need} ({_OPTIONS[need]})" if need in _OPTIONS else need


def _why(found: tuple[Finding, ...]) -> str:
    """Return the message of the most serious finding."""
    for ruling in (Ruling.FAILS, Ruling.UNCLEAR, Ruling.OBSERVED):
        for item in found:
            if item.ruling is ruling:
                return item.message
    return ""


# Three examples of each ruling are enough for a reader; the log has them all.
MAX_EXAMPLES = 3


def _examples(found: tuple[Finding, ...]) -> tuple[Finding, ...]:
    kept: list[Finding] = []
    for ruling in (Ruling.FAILS, Ruling.UNCLEAR, Ruling.OBSERVED, Ruling.HOLDS):
        # The first of several findings with the same message.
        first: dict[str, Finding] = {}
        for item in found:
            if item.ruling is ruling:
                first.setdefault(item.message, item)
        kept += list(first.values())[:MAX_EXAMPLES]
    return tuple(kept)
