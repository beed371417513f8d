"""Interface 4.2, rules 1 and 2: what POST /rpc says, beside what the native resources say.

The parameters and results of its methods are not specified. What is compared is where the usual
engines have it, and a chain goes on meanwhile.
"""

import json

from conformance.checks.native import mapped, native_get
from conformance.checks.native_rpc import NO_SUCH_METHOD, call_rpc, error_code, hash_of, tip_of
from conformance.context import Context
from conformance.editions import SIXTH
from conformance.findings import Skipped
from conformance.httpwire import Answer
from conformance.registry import requirement
from conformance.shapes import lookup
from conformance.strictjson import Json, brief, is_int

STATUS, BLOCK, BOUNDS, POWERS = "NT-RULE-150", "NT-RULE-151", "NT-RULE-152", "NT-RULE-153"
ENGINE, CALLED = "NT-RULE-154", "NT-RULE-095"
# No process of a node is so many blocks behind another one.
APART = 3
HEIGHTS = ("sync_info.latest_block_height", "latest_block_height", "height")
HASHES = ("sync_info.latest_block_hash", "latest_block_hash", "hash")
OF_BLOCK = ("block.header.height", "header.height", "height")
CHAIN_OF_BLOCK = ("block.header.chain_id", "header.chain_id", "chain_id")
POWER = ("validators[].voting_power", "validators[].power")
# What else engines serve: of what waits, of what was searched for, and of what is in them.
OTHERS = (
    "genesis", "genesis_chunked", "tx_search", "block_search", "blockchain", "unconfirmed_txs",
    "num_unconfirmed_txs", "abci_info", "consensus_params", "block_results", "broadcast_evidence",
    "NET_INFO", "Dump_Consensus_State", "/net_info", " net_info",
)  # fmt: skip
IN_PATHS = ("/rpc/net_info", "/rpc/dump_consensus_state", "/rpc?method=net_info")
ABOVE, FEW = 1_000_000, 20
# A node that has to wait says so.
BUSY = 429


def _first(result: Json, paths: tuple[str, ...]) -> str:
    """Return the first value that is at one of the paths, as a text, or an empty one."""
    found = [value for path in paths for value in lookup(result, path)]
    values = [v for v in found if isinstance(v, str) or is_int(v)]
    return str(values[0]) if values else ""


def _height(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def _served(context: Context) -> tuple[Answer, Json]:
    """Return the status. Raises `Skipped` where there is none."""
    if context.edition < SIXTH:
        raise Skipped("later editions ask for it")
    answer, result = call_rpc(context, "status", {})
    if result is None:
        raise Skipped("POST /rpc serves no status")
    return answer, result


@requirement(STATUS)
def native_rpc_status(context: Context) -> None:
    """POST /rpc with status between two readings of the network, and GET the block of its hash."""
    before = tip_of(context)
    answer, result = _served(context)
    after = tip_of(context)
    height = _height(_first(result, HEIGHTS))
    if not before or not height:
        raise Skipped("the network or the status of /rpc has no height")
    why = f"the status of /rpc has the height {height}, the network {before} and then {after}"
    held = before - APART <= height <= after + APART
    context.judge(STATUS, held, why, answer)
    name = _first(result, HASHES).lower()
    (own, own_hash), (below, hash_below) = (hash_of(context, at) for at in (height, height - 1))
    if name and own_hash and name == hash_below.lower() != own_hash.lower():
        why = f"the status of /rpc has the hash of the block {height - 1} with the height {height}"
        context.fails(STATUS, why, answer, own, below)


@requirement(BLOCK, BOUNDS)
def native_rpc_named(context: Context) -> None:
    """POST /rpc with block: heights as numbers and as texts, none, and such as no block has."""
    _served(context)
    network = native_get(context, "/api/network")
    chains = {v for v in (network.json_object() or {}).values() if isinstance(v, str)}
    for height in (2, 3):
        answers = [call_rpc(context, "block", {"height": one}) for one in (str(height), height)]
        for answer, result in answers:
            found = _first(result, OF_BLOCK)
            why = f"the block at {height} has the height {brief(found)} in /rpc"
            if found:
                context.judge(BLOCK, found == str(height), why, answer)
            chain = _first(result, CHAIN_OF_BLOCK)
            if chain and chains:
                why = f"the block at {height} is of the chain {brief(chain)} in /rpc"
                context.judge(BLOCK, chain in chains, why, network, answer)
        results = [result for _, result in answers]
        taken = [result is not None for result in results]
        why = f"of the heights {str(height)!r} and {height} /rpc takes the first one: {taken[0]}"
        why = f"{why}, the other one: {taken[1]}"
        both = [answer for answer, _ in answers]
        if any(taken) and all(answer.status < BUSY for answer in both):
            context.judge(BLOCK, taken[0] == taken[1], why, *both)
        if None not in results:
            why = f"the block at {height} differs with the height as a number and as a text"
            same = results[0] == results[1]
            context.judge(BLOCK, same, why, *(answer for answer, _ in answers))
    before = tip_of(context)
    answer, result = call_rpc(context, "block", {})
    latest = _height(_first(result, OF_BLOCK))
    if before and latest is not None:
        why = f"without a height /rpc has the block {latest}, and the network had {before} before"
        context.judge(BLOCK, latest >= before - APART, why, answer)
    for odd in (str(before + ABOVE), "-1", "none"):
        answer, result = call_rpc(context, "block", {"height": odd})
        shown = _first(result, OF_BLOCK)
        context.judge(BOUNDS, not shown, f"the height {odd} has the block {shown} in /rpc", answer)


@requirement(POWERS)
def native_rpc_powers(context: Context) -> None:
    """POST /rpc with validators between two readings of the validators, and compare the powers."""
    _served(context)
    listed = native_get(context, "/api/validators")
    answer, result = call_rpc(context, "validators", {})
    again = native_get(context, "/api/validators")
    before, after = (
        sorted(map(str, mapped(context, "/api/validators power", one.json_object())))
        for one in (listed, again)
    )  # fmt: skip
    found = sorted(str(value) for path in POWER for value in lookup(result, path))
    if before == after and found and len(before) < FEW:
        why = f"validators have the powers {brief(before)}, and in /rpc {brief(found)}"
        positive = [power for power in before if power != "0"]
        context.judge(POWERS, found in (before, positive), why, listed, answer)


@requirement(ENGINE, CALLED)
def native_rpc_others(context: Context) -> None:
    """POST /rpc with further methods of engines, and GET it as these can be asked."""
    control, _ = _served(context)
    for method in OTHERS:
        answer, result = call_rpc(context, method, {})
        context.judge(ENGINE, result is None, f"{method} returns {brief(result)}", control, answer)
    for path in IN_PATHS:
        answer = context.http.call("GET", path)
        result = (answer.json_object() or {}).get("result") if answer.ok else None
        why = f"GET {path} returns {brief(result)}"
        context.judge(ENGINE, result is None, why, control, answer)
    call = {"jsonrpc": "2.0", "id": 77, "method": NO_SUCH_METHOD, "params": {}}
    answer = context.http.call("POST", "/rpc", content=json.dumps(call).encode())
    document = answer.json_object() or {}
    if error_code(answer) is not None and "id" in document:
        why = f"the id of a call is 77, and that of its error {brief(document['id'])}"
        context.judge(CALLED, document["id"] == call["id"], why, answer)
