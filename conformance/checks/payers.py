"""Interface 2.2: which of two accounts pays for a signed request."""

import re
import time

from conformance.checks.signed_requests import (
    ATOMS,
    BLOCK_S,
    DONE,
    LOOK_S,
    PENDING,
    account_of,
    at_rest,
    is_refused,
    poll,
    post,
    settled,
    sign,
    state_of,
)
from conformance.context import Context
from conformance.editions import SEVENTH, SIXTH
from conformance.httpwire import Answer
from conformance.signer import Kind, Signed
from conformance.strictjson import Json, brief, is_int

PAYER, NAMED, COMPLETED = "NT-RULE-085", "NT-RULE-108", "NT-RULE-073"
SOUND = "NT-RULE-105"
EXPIRY, HASHED = "NT-RULE-158", "NT-RULE-159"
# What a record may call its block expiry, and its transaction.
_EXPIRES = re.compile(r"(block_)?expir(es|y)(_at)?(_height|_block)?\Z", re.ASCII | re.IGNORECASE)
_HASH = re.compile(r"(tx|transaction)_?hash\Z", re.ASCII | re.IGNORECASE)
# What a record may call the key of whoever asked.
BUYERS = ("public_key", "account", "buyer", "payer", "owner", "signer", "requester", "sender")


def judge_payer(context: Context, first: Signed) -> None:
    """Broadcast a request of another account than the first one's, and compare both accounts.

    Raises `Skipped` if the signer has no other account. Others may pay meanwhile, so what the first
    account pays counts only if the other one pays nothing.
    """
    made = sign(context, Kind.OTHER)
    keys = made.public_key, first.public_key
    if "" in keys or keys[0] == keys[1] or not settled(context):
        return
    before = [at_rest(context, key) for key in keys]
    answer = post(context, made)
    if is_refused(answer) and context.edition >= SEVENTH:
        again = post(context, sign(context, Kind.OTHER))
        why = f"two sound requests of another account are refused: {brief(again.body)}"
        context.judge(SOUND, not is_refused(again), why, answer, again)
    if is_refused(answer) or not all(one.money for one in before):
        return
    context.budget.charge(made.cost / ATOMS)
    within_s = context.target.inference_timeout_s
    looked, record = poll(
        context, made.request_id, lambda seen: state_of(seen) != PENDING, within_s
    )
    if record is not None:
        # It was found.
        why = f"after {within_s:g} s it is {state_of(record)}, and one of another account completed"
        context.judge(COMPLETED, state_of(record) == DONE, why, answer, looked)
    ends = time.monotonic() + BLOCK_S
    while True:
        after = [account_of(context, key) for key in keys]
        paid, other = (one.money != two.money for one, two in zip(before, after, strict=True))
        if paid or other or time.monotonic() > ends:
            break
        time.sleep(LOOK_S)
    why = f"{keys[0]} has {brief(before[0].money)} before its request and after it"
    why = f"{why}; {keys[1]}: {brief(before[1].money)}, {brief(after[1].money)}"
    shown = *(one.answer for one in before), answer, *(one.answer for one in after)
    if paid or other:
        context.judge(PAYER, paid, why, *shown)


def judge_named(context: Context, made: Signed, record: Json, answer: Answer) -> None:
    """Rule on the key that a record has under a name for whoever has asked."""
    found = record if isinstance(record, dict) else {}
    keys = {name: found[name] for name in BUYERS if isinstance(found.get(name), str)}
    keys = {name: key for name, key in keys.items() if len(str(key)) == len(made.public_key)}
    if made.public_key and keys:
        why = f"{made.public_key} has signed the request, and its record has {brief(keys)}"
        context.judge(NAMED, set(keys.values()) == {made.public_key}, why, answer)
    if context.edition >= SIXTH:
        _judge_shown(context, made, found, answer)


def _judge_shown(context: Context, made: Signed, record: dict[str, Json], answer: Answer) -> None:
    """Rule on the block expiry and the transaction that a record has, under names for these."""
    heights = [v for name, v in record.items() if _EXPIRES.match(name) and is_int(v)]
    if made.expires and heights:
        why = f"the request expires at {made.expires}, and its record has {brief(heights)}"
        context.judge(EXPIRY, made.expires in heights, why, answer)
    hashes = [v for name, v in record.items() if _HASH.match(name) and isinstance(v, str)]
    if made.hash and hashes:
        shown = [one.lower().removeprefix("0x") for one in hashes]
        why = f"the transaction has the hash {made.hash}, and the record {brief(hashes)}"
        context.judge(HASHED, made.hash.lower().removeprefix("0x") in shown, why, answer)
