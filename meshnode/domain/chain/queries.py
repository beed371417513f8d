"""Native queries of the committed state (interface 4.2 rule 1; native network 3).

``data`` is a JSON object of options; the value is canonical JSON with money as integers, which the
gateway turns into decimal strings. A query that cannot be answered has a result with code 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

from meshnode.domain.chain.accounts import read_account
from meshnode.domain.chain.bonds import voting_powers
from meshnode.domain.chain.canonical import Json, JsonLimits, encode, parse
from meshnode.domain.chain.context import Context
from meshnode.domain.chain.envelope import account_key
from meshnode.domain.chain.errors import Rejected
from meshnode.domain.chain.records import (
    Chain,
    Claim,
    Clock,
    FinishedJob,
    FinishedJobs,
    Job,
    Jobs,
    Lease,
    Proof,
    Proofs,
    Stake,
    Supply,
    Training,
    Validator,
)
from meshnode.domain.chain.stakes import settle_cooldowns, stake_multiplier
from meshnode.domain.chain.values import consensus_key, integer, sha256_hex

OPTION_LIMITS = JsonLimits(size=4096, depth=4, fractions=False)
VALIDATORS_PER_PAGE = 100

Options = dict[str, Json]
Answer = Callable[["Question", Options], dict[str, Json]]


class InvalidQuery(Rejected):
    """Invalid query."""


class MissingOption(InvalidQuery):
    """A query lacks an option; the message is its name, as clients of the public network expect."""

    def __init__(self, name: str) -> None:
        Exception.__init__(self, repr(name))


class UnknownQuery(InvalidQuery):
    """Unknown query."""


class JobNeverSeen(InvalidQuery):
    """Request not found: no block has accepted it so far."""


class JobNotRetained(InvalidQuery):
    """Request not found in current state; inspect its native blocks."""


@dataclass(frozen=True, slots=True)
class QueryResult:
    """``code`` 0 with a value, or 1 with the reason in ``log``; both at ``height``."""

    code: int
    log: str
    value: bytes
    height: int


@dataclass(frozen=True, slots=True)
class Question:
    """The state that queries are answered from."""

    context: Context
    manifest: dict[str, Json]
    app_hash: bytes


def answer(
    context: Context, manifest: dict[str, Json], app_hash: bytes, path: str, data: bytes
) -> QueryResult:
    """Answer the query ``path`` with the options ``data``. A refused query has code 1."""
    height = context.view.get(Clock).height
    try:
        options = parse(data, OPTION_LIMITS) if data else {}
        if not isinstance(options, dict):
            raise InvalidQuery
        if path not in ANSWERS:
            raise UnknownQuery
        value = ANSWERS[path](Question(context, manifest, app_hash), options)
    except Rejected as refusal:
        return QueryResult(1, str(refusal), b"", height)
    return QueryResult(0, "", encode(value), height)


def _summary(question: Question, options: Options) -> dict[str, Json]:
    view, profile = question.context.view, question.context.profile
    chain, clock, supply = view.get(Chain), view.get(Clock), view.get(Supply)
    training, lease = view.get(Training), view.find(Lease)
    powers = voting_powers(view, clock.height)
    return {
        **asdict(training),
        "chain_id": chain.chain_id,
        "height": clock.height,
        "time_ns": clock.time_ns,
        "issued": supply.issued,
        "burned": supply.burned,
        "initial_supply": supply.initial,
        "lease": None if lease is None else _lease(lease),
        "validator_count": len(powers),
        "total_voting_power": sum(powers.values()),
        "account_count": supply.accounts,
        "params": asdict(profile.params),
        "profile": profile.name,
        "manifest_hash": chain.manifest_hash,
        "app_hash": question.app_hash.hex(),
        "pending_inference": len(view.get(Jobs).pending),
    }


def _manifest(question: Question, options: Options) -> dict[str, Json]:
    return question.manifest


def _account(question: Question, options: Options) -> dict[str, Json]:
    context = question.context
    owner = account_key(_option(options, "public_key"))
    # What has cooled down is available even before the account's next transaction settles it.
    view = context.view.layer()
    settle_cooldowns(view, owner, context.time_ns)
    account = read_account(view, owner)
    return {
        "public_key": owner,
        "balance": account.available,
        "locked": account.locked,
        "total": account.money,
        "nonce": account.nonce,
    }


def _stake(question: Question, options: Options) -> dict[str, Json]:
    context = question.context
    owner = account_key(_option(options, "public_key"))
    view = context.view.layer()
    settle_cooldowns(view, owner, context.time_ns)
    stake = view.find(Stake, owner) or Stake()
    scale = context.profile.params.atom_scale
    multiplier = stake_multiplier(stake.amount, scale)
    return {"public_key": owner, "multiplier_millionths": multiplier, **asdict(stake)}


def _validators(question: Question, options: Options) -> dict[str, Json]:
    view, height = question.context.view, question.context.height
    limit = integer(options.get("limit", VALIDATORS_PER_PAGE), 1, VALIDATORS_PER_PAGE)
    after = options.get("after", "")
    if after != "":
        consensus_key(after)
    powers = voting_powers(view, height)
    page = [key for key in powers if key > str(after)][:limit]
    validators = [(key, view.get(Validator, key)) for key in page]
    return {
        "validators": [
            {
                "public_key": key,
                "power": powers[key],
                "owner": validator.owner,
                "bond": validator.amount,
            }
            for key, validator in validators
        ],
        "total": len(powers),
        "next_after": page[-1] if len(page) == limit else None,
    }


def _task(question: Question, options: Options) -> dict[str, Json]:
    view = question.context.view
    training, lease = view.get(Training), view.find(Lease)
    return {
        "chain_id": view.get(Chain).chain_id,
        "round": training.round,
        "model_root": training.model_root,
        "lease": None if lease is None else _lease(lease),
        **question.context.model.describe_task(training.round, training.model_root),
    }


def _jobs(question: Question, options: Options) -> dict[str, Json]:
    view, provider = question.context.view, account_key(_option(options, "provider"))
    pending = [(name, view.get(Job, name)) for _, name in sorted(view.get(Jobs).pending)]
    mine = sorted((name, job) for name, job in pending if job.provider == provider)
    return {"jobs": [_job_terms(name, job) for name, job in mine]}


def _job(question: Question, options: Options) -> dict[str, Json]:
    view, name = question.context.view, sha256_hex(_option(options, "id"))
    job, finished = view.find(Job, name), view.find(FinishedJob, name)
    if job is not None:
        state: dict[str, Json] = {"status": "pending", "created_height": job.created_height}
        return {**_job_terms(name, job), **state}
    if finished is None:
        # As long as nothing was dropped, everything that was ever accepted is known.
        raise JobNotRetained if view.get(FinishedJobs).dropped else JobNeverSeen
    value: dict[str, Json] = {
        "id": name,
        "status": finished.status,
        "owner": finished.owner,
        "provider": finished.provider,
        "model_root": finished.model_root,
        "height": finished.height,
    }
    if finished.status == "expired":
        return {**value, "refunded": finished.refunded}
    paid: dict[str, Json] = {"price": finished.price, "provider_paid": finished.provider_paid}
    return {**value, **paid, "output": finished.output}


def _proofs(question: Question, options: Options) -> dict[str, Json]:
    view = question.context.view
    proofs = view.find(Proofs) or Proofs()
    opened = [(name, view.get(Proof, name)) for _, name in proofs.pending]
    return {
        "open": [{"id": name, **asdict(proof)} for name, proof in opened],
        "submitted": proofs.submitted,
        "verified": proofs.verified,
        "paid": proofs.paid,
    }


def _claim(question: Question, options: Options) -> dict[str, Json]:
    view = question.context.view
    statement = sha256_hex(_option(options, "statement"))
    claim = view.find(Claim, statement)
    status = "none"
    if claim is not None:
        status = "verified" if view.find(Proof, claim.proof_id) is None else "open"
    found = Claim("", 0) if claim is None else claim
    return {"statement": statement, "status": status, **asdict(found)}


ANSWERS: dict[str, Answer] = {
    "/summary": _summary,
    "/status": _summary,
    "/manifest": _manifest,
    "/account": _account,
    "/stake": _stake,
    "/validators": _validators,
    "/task": _task,
    "/jobs": _jobs,
    "/job": _job,
    "/proofs": _proofs,
    "/claim": _claim,
}


def _option(options: Options, name: str) -> Json:
    if name not in options:
        raise MissingOption(name)
    return options[name]


def _job_terms(name: str, job: Job) -> dict[str, Json]:
    return {
        "id": name,
        "owner": job.owner,
        "provider": job.provider,
        "model_root": job.model_root,
        "request": {"prompt": job.prompt, "max_tokens": job.max_tokens},
        "price": job.price,
        "expires": job.expires,
    }


def _lease(lease: Lease) -> dict[str, Json]:
    return {**asdict(lease), "task_kind": "train", "request": {}, "price": 0}
