"""Paid inference: ``infer``, ``respond`` and expiry (interface 3; native network 1.3).

==========  ==============================  ===========  =========================================
from        by                              to           money
==========  ==============================  ===========  =========================================
(none)      ``infer``                       pending      price locked at the owner, fee burned
pending     ``respond`` by its provider,    completed    4/5 to the provider, the rest to verifiers
            up to height ``expires``
pending     first block above ``expires``,  expired      price unlocked
            before its transactions
==========  ==============================  ===========  =========================================

Invariants: a job leaves ``pending`` once; locked balances are the prices of pending jobs; the
latest finished jobs are kept in the order in which they finished, and the dropped ones are counted:
as long as that count is zero, an unknown id was never accepted.
"""

from __future__ import annotations

from typing import Final

from meshnode.domain.chain.accounts import lock, pay, take_locked
from meshnode.domain.chain.canonical import Json, digest
from meshnode.domain.chain.context import Context, Transaction
from meshnode.domain.chain.envelope import ApplicationId, account_key
from meshnode.domain.chain.errors import (
    InvalidPrompt,
    JobQueueFull,
    NoLiveJob,
    WrongResult,
    WrongServingRoot,
)
from meshnode.domain.chain.records import FinishedJob, FinishedJobs, Job, Jobs, Training
from meshnode.domain.chain.rewards import set_aside
from meshnode.domain.chain.values import integer, sha256_hex

INFER_FIELDS = frozenset({"provider", "model_root", "request", "price", "expires"})
RESPOND_FIELDS = frozenset({"job_id", "result_root"})

SOONEST_EXPIRY: Final = 2
"""Blocks from acceptance to the earliest ``expires``: the answer needs a block after this one."""


def provider_share(price: int) -> int:
    """The provider's part of a price; the verifiers get the rest."""
    return price * 4 // 5


def request_root(prompt: str, max_tokens: int) -> str:
    """The digest of a request; an output contains it to identify the request that it answers."""
    return digest({"prompt": prompt, "max_tokens": max_tokens})


def apply_infer(context: Context, transaction: Transaction) -> None:
    """Accept a job and lock its price."""
    view, body = context.view, transaction.body
    params, limits = context.profile.params, context.profile.limits
    provider = account_key(body["provider"])
    prompt, max_tokens = _read_request(body["request"], limits.prompt_bytes, limits.output_tokens)
    # The price must cover ``max_tokens`` tokens and may be higher.
    price = integer(body["price"], max_tokens * params.inference_token_price)
    height = context.height
    expires = integer(body["expires"], height + SOONEST_EXPIRY, height + params.inference_blocks)
    # The answer must come from the weights that the client saw.
    if body["model_root"] != view.get(Training).serving_root:
        raise WrongServingRoot
    jobs = view.get(Jobs)
    if len(jobs.pending) >= limits.pending_jobs:
        raise JobQueueFull
    lock(view, transaction.sender, price)
    # The check that needs the model comes last: the prompt must fit the model's context.
    context.model.check_request(prompt, max_tokens)
    view.put(Jobs(tuple(sorted((*jobs.pending, (expires, transaction.id))))))
    view.put(
        Job(
            owner=transaction.sender,
            provider=provider,
            model_root=view.get(Training).serving_root,
            prompt=prompt,
            max_tokens=max_tokens,
            price=price,
            expires=expires,
            created_height=height,
        ),
        transaction.id,
    )


def apply_respond(context: Context, transaction: Transaction) -> None:
    """Complete a job if its answer, generated again, has the digest that the provider sent."""
    view, body = context.view, transaction.body
    job_id = ApplicationId(sha256_hex(body["job_id"]))
    result_root = sha256_hex(body["result_root"])
    job = view.find(Job, job_id)
    # Only the job's provider may answer. Expired jobs were removed before any transaction.
    if job is None or job.provider != transaction.sender:
        raise NoLiveJob
    output = context.model.answer(job_id, job)
    if digest(output) != result_root:
        raise WrongResult
    paid = provider_share(job.price)
    take_locked(view, job.owner, job.price)
    pay(view, transaction.sender, paid, "provider payment", job_id)
    set_aside(context, job.price - paid)
    _finish(context, job_id, job, "completed", provider_paid=paid, output=output)


def expire_jobs(context: Context) -> None:
    """Refund the budgets of expired jobs, in order of (expires, id)."""
    for expires, job_id in context.view.get(Jobs).pending:
        if expires >= context.height:
            break
        job = context.view.get(Job, job_id)
        take_locked(context.view, job.owner, job.price)
        pay(context.view, job.owner, job.price, "refund", job_id)
        _finish(context, job_id, job, "expired", refunded=job.price)


def _read_request(value: Json, max_bytes: int, max_tokens: int) -> tuple[str, int]:
    if not isinstance(value, dict) or set(value) != {"prompt", "max_tokens"}:
        raise InvalidPrompt
    prompt = value["prompt"]
    if not isinstance(prompt, str) or not 1 <= len(prompt.encode()) <= max_bytes:
        raise InvalidPrompt
    return prompt, integer(value["max_tokens"], 1, max_tokens)


def _finish(
    context: Context,
    job_id: str,
    job: Job,
    status: str,
    *,
    provider_paid: int = 0,
    refunded: int = 0,
    output: Json = None,
) -> None:
    view = context.view
    view.put(Jobs(tuple(entry for entry in view.get(Jobs).pending if entry[1] != job_id)))
    view.drop(Job, job_id)
    view.put(
        FinishedJob(
            status=status,
            owner=job.owner,
            provider=job.provider,
            model_root=job.model_root,
            price=job.price,
            provider_paid=provider_paid,
            refunded=refunded,
            height=context.height,
            output=output,
        ),
        job_id,
    )
    finished = view.get(FinishedJobs)
    ids = (*finished.ids, job_id)
    excess = max(0, len(ids) - context.profile.limits.finished_jobs)
    for forgotten in ids[:excess]:
        view.drop(FinishedJob, forgotten)
    view.put(FinishedJobs(ids[excess:], finished.dropped + excess))
