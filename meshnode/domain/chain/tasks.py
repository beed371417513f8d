"""Sponsored training: ``reserve``, ``submit`` and the lease (native network 1.2 and 1.4).

One task may be reserved at a time. Its sponsor puts up a bond, has two workers compute one step,
and submits their receipts, which every validator checks by repeating the step. Acceptance issues
the task's budget: half of the worker budget to each worker, the rest to the verifiers; the bond
goes back. The bond of a lease that runs out is burned. The adapter itself is not in the state, only
its root: a node that repeats the rounds has it, and others fetch it by that root (decision 0061).
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from meshnode.domain.chain.accounts import burn, debit, issue, pay
from meshnode.domain.chain.canonical import encode
from meshnode.domain.chain.context import Context, Transaction
from meshnode.domain.chain.envelope import account_key, open_envelope
from meshnode.domain.chain.errors import (
    InvalidReceipts,
    InvalidTaskBudget,
    InvalidWorkers,
    TaskNotReserved,
    TaskReserved,
    UnknownTaskKind,
    WrongReceipt,
    WrongResult,
    WrongTaskParent,
)
from meshnode.domain.chain.records import Lease, Training
from meshnode.domain.chain.rewards import set_aside
from meshnode.domain.chain.values import sha256_hex

RESERVE_FIELDS = frozenset({"task_kind", "parent", "round", "workers", "request", "price"})
SUBMIT_FIELDS = frozenset({"task_id", "result_root", "receipts"})

STAGES = 2
"""Workers of a task, one for each stage of the step."""


def batch_index(domain: str, round_number: int, count: int) -> int:
    """Which of ``count`` training sequences a round uses."""
    name = f"{domain}:{round_number}".encode()
    return int.from_bytes(hashlib.sha256(name).digest()) % count


def is_lower(loss_hex: str, than_hex: str) -> bool:
    """Compare two losses written as hexadecimal floats; the comparison is exact."""
    return float.fromhex(loss_hex) < float.fromhex(than_hex)


def apply_reserve(context: Context, transaction: Transaction) -> None:
    """Reserve the next training task and put up its bond."""
    view, body, params = context.view, transaction.body, context.profile.params
    # Inference has its own transaction.
    if body["task_kind"] != "train":
        raise UnknownTaskKind
    if view.find(Lease) is not None:
        raise TaskReserved
    training = view.get(Training)
    round_number = body["round"]
    # The step continues from the latest adapter; True is not round 1.
    if (
        body["parent"] != training.model_root
        or type(round_number) is not int
        or round_number != training.round
    ):
        raise WrongTaskParent
    workers = body["workers"]
    if not isinstance(workers, list) or len(workers) != STAGES:
        raise InvalidWorkers
    keys = tuple(account_key(worker) for worker in workers)
    # The network pays for training, up to its cap, so the price is 0.
    price = body["price"]
    exhausted = training.round >= params.max_training_tasks
    if body["request"] != {} or type(price) is not int or price != 0 or exhausted:
        raise InvalidTaskBudget
    debit(view, transaction.sender, params.reservation_bond)
    view.put(
        Lease(
            task_id=transaction.id,
            owner=transaction.sender,
            workers=keys,
            parent=training.model_root,
            round=training.round,
            escrow=params.reservation_bond,
            expires=context.height + params.lease_blocks,
        )
    )


def apply_submit(context: Context, transaction: Transaction) -> None:
    """Accept the reserved step if its result and receipts equal those of a replay."""
    view, body, params = context.view, transaction.body, context.profile.params
    lease = view.find(Lease)
    if lease is None or lease.owner != transaction.sender or body["task_id"] != lease.task_id:
        raise TaskNotReserved
    result_root, receipts = sha256_hex(body["result_root"]), body["receipts"]
    if not isinstance(receipts, list) or len(receipts) != STAGES:
        raise InvalidReceipts
    # Signatures are checked first: they cost less than the step.
    signed = [open_envelope(receipt) for receipt in receipts]
    replay = context.model.train(lease)
    if result_root != replay.result_root:
        raise WrongResult
    for worker, receipt, expected in zip(lease.workers, signed, replay.receipts, strict=True):
        if receipt.signer != worker or encode(receipt.body) != encode(expected):
            raise WrongReceipt
    view.drop(Lease)
    pay(view, lease.owner, lease.escrow, "bond returned", lease.task_id)
    issue(view, params.task_budget)
    for worker in lease.workers:
        pay(view, worker, params.worker_budget // STAGES, "worker reward", lease.task_id)
    set_aside(context, params.task_budget - params.worker_budget // STAGES * STAGES)
    _advance_model(context, replay.result_root, replay.loss_hex, replay.validation_loss_hex)


def expire_lease(context: Context) -> None:
    """Burn the bond of an expired lease, which kept others from useful work."""
    lease = context.view.find(Lease)
    if lease is not None and context.height > lease.expires:
        burn(context.view, lease.escrow)
        context.view.drop(Lease)


def _advance_model(context: Context, root: str, loss_hex: str, validation_hex: str) -> None:
    """Make the adapter the latest; serve it only if its validation loss is strictly lower."""
    training = context.view.get(Training)
    promoted = is_lower(validation_hex, training.serving_loss_hex)
    training = replace(
        training,
        round=training.round + 1,
        model_root=root,
        validation_loss_hex=validation_hex,
        last_training_loss_hex=loss_hex,
        last_training_evaluation={
            "height": context.height,
            "round": training.round + 1,
            "model_root": root,
            "validation_loss_hex": validation_hex,
            "promoted": promoted,
        },
    )
    if promoted:
        training = replace(training, serving_root=root, serving_loss_hex=validation_hex)
    context.view.put(training)
