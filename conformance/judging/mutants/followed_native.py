"""Mutants of what two native answers say of one thing, and of native requests in other forms."""

import copy
import itertools
from typing import Any

from conformance.judging.hooks import Http, on, put
from conformance.judging.mutants.mixed_native import become, query_of
from conformance.judging.toy.answers import Asked, Response
from conformance.judging.toy.native import CHAIN, DIGEST, TIP, VIEW, job_of, loss_of

ROUNDS = "/api/training"
BLOCK, REQUEST = "/api/block/", "/api/inference/request"
EARLY, SEVERAL = 1_000, 3


class New:
    """A node that publishes its genesis anew each time."""

    def __init__(self) -> None:
        self.answers = itertools.count()

    def __call__(self, asked: Asked, response: Response) -> None:
        """Say when."""
        if asked.path == "/network/genesis.json" and response.status == 200:
            response.json["published"] = next(self.answers)


def other_losses(asked: Asked, response: Response) -> None:
    """Have the loss of the update before on pages with a bound."""
    if asked.path == ROUNDS and "before" in asked.query and response.status == 200:
        for one in response.json["records"]:
            one["loss"] = loss_of(one["round"] - 1)


def other_gas(asked: Asked, response: Response) -> None:
    """Have another figure of a block in the list than by itself."""
    if response.status != 200:
        return
    for one in response.json["blocks"] if asked.path == "/api/blocks" else ():
        one["gas"] = 7
    if asked.path.startswith(BLOCK):
        response.json["gas"] = 8


def roots_apart(response: Response) -> None:
    """Name the root of an update as that of the one before."""
    for one in response.json["records"]:
        one["root"] = one["previous_root"] = f"{one['round']:064x}"


def backwards(response: Response) -> None:
    """Count the time down."""
    for one in response.json["blocks"]:
        one["time"] = EARLY - one["height"]


def one_key(response: Response) -> None:
    """Name the same key in each account."""
    response.json["public_key"] = "03" + "c" * 64


def secret_told(response: Response) -> None:
    """Show what nobody may see."""
    response.json["validators"][0]["private_key"] = "ab" * 32


def more_counted(response: Response) -> None:
    """Count more transactions than a block has results."""
    for one in response.json["blocks"]:
        one["tx_count"] = 9


def rooted_otherwise(response: Response) -> None:
    """Have roots of updates that the model does not have."""
    for one in response.json["records"]:
        one["root"] = f"another {one['round']}"


def twice(response: Response) -> None:
    """List the first validator once more."""
    response.json["validators"] *= 2


def failing_for_names(asked: Asked, response: Response) -> None:
    """Fail for a height that is no number."""
    if asked.path == f"{BLOCK}none":
        become(response, Response(500, {"error": "no number"}))


def newest_instead(asked: Asked, response: Response) -> None:
    """Serve the newest block under what is no height."""
    if asked.path.startswith(BLOCK) and not asked.path.removeprefix(BLOCK).isdecimal():
        become(response, Response(json={"height": str(TIP), "hash": f"hash{TIP}"}))


def nobody_at_all(asked: Asked, response: Response) -> None:
    """Have an account for whatever is no key."""
    if asked.path == "/api/account" and response.status == 400:
        nothing = {"balance": "0", "locked": "0", "total": "0", "next_nonce": 0}
        become(response, Response(json=nothing))


def in_small_letters(asked: Asked, response: Response) -> None:
    """Have another account for a key in capital letters."""
    key = query_of(asked).get("public_key", "")
    if asked.path == "/api/account" and response.status == 200 and key != key.lower():
        response.json.update(balance="0", locked="0", total="0")


def all_paths(asked: Asked, response: Response) -> None:
    """Answer paths that do not exist with success."""
    if asked.path.endswith("no-such-route-of-the-document") and response.status == 404:
        become(response, Response(json={}))


def deleting(asked: Asked, response: Response) -> None:
    """Take a DELETE."""
    if asked.method == "DELETE" and asked.path == "/api/blocks":
        become(response, Response(json={"deleted": 0}))


def knowing_tokens(asked: Asked, response: Response) -> None:
    """Refuse a token that nobody has, where none is needed."""
    if asked.path == "/api/blocks" and asked.authorization and not asked.authorized:
        become(response, Response(401, {"error": "no such token"}))


def begun_alike(asked: Asked, response: Response) -> None:
    """Look only at the beginning of an id."""
    ident = query_of(asked).get("id", "")
    known = job_of(TIP, 0)
    if asked.path == REQUEST and ident != known and ident.startswith(known):
        response.json.update(id=known, prompt=f"Say {known}.")


def begun_digests(asked: Asked, response: Response) -> None:
    """Look only at the beginning of a digest."""
    if asked.path.startswith(f"/artifacts/sha256/{DIGEST}0"):
        become(response, Response(raw=b"an artifact of the toy", headers={}))


class Behind:
    """A node that reads a block as the first one directly behind the validators."""

    def __init__(self) -> None:
        self.before = ""

    def __call__(self, asked: Asked, response: Response) -> None:
        """Remember the path."""
        if asked.path.startswith(BLOCK) and self.before == "/api/validators":
            response.json = copy.deepcopy(response.json) | {"behind": "the validators"}
        self.before = asked.path


def called(method: str, change: Any) -> Http:
    """Change the results of one method of /rpc."""

    def hook(asked: Asked, response: Response) -> None:
        body = asked.body if isinstance(asked.body, dict) else {}
        if asked.path == "/rpc" and body.get("method") == method:
            change(body, response)

    return hook


def old_status(_: Any, response: Response) -> None:
    """Be at the first block."""
    response.json["result"]["sync_info"] = {"latest_block_height": "1"}


def numbers_unread(body: Any, response: Response) -> None:
    """Serve the newest block where the height is a number."""
    if isinstance((body.get("params") or {}).get("height"), int):
        response.json["result"]["height"] = str(TIP)


def any_height(_: Any, response: Response) -> None:
    """Serve the newest block in place of one that is not there."""
    if response.status == 400:
        result = {"height": str(TIP), "hash": f"hash{TIP}"}
        become(response, Response(json={"jsonrpc": "2.0", "id": 1, "result": result}))


def equal_powers(_: Any, response: Response) -> None:
    """Give each validator the power 1."""
    response.json["result"]["validators"] = [{"voting_power": "1"}]


def served(_: Any, response: Response) -> None:
    """Serve a method of the engine."""
    become(response, Response(json={"jsonrpc": "2.0", "id": 1, "result": {"n_txs": "0"}}))


def to_another_join(response: Response) -> None:
    """Lead to a page of another name."""
    response.headers["Location"] = "/old/join"


def failing_for_arrays(asked: Asked, response: Response) -> None:
    """Fail for a message that is no object."""
    if asked.path == "/work/poll" and isinstance(asked.body, list):
        become(response, Response(500, {"error": "no object"}))


def believing(asked: Asked, response: Response) -> None:
    """Take a message that names a worker."""
    if asked.path == "/work/poll" and isinstance(asked.body, dict) and "worker" in asked.body:
        become(response, Response(json={"work": None}))


def none_is_all(asked: Asked, response: Response) -> None:
    """Take a bound of 0 for none."""
    if asked.path == "/api/blocks" and query_of(asked).get("before") == "0":
        become(response, Response(json={"blocks": [{"height": TIP, "hash": f"hash{TIP}"}]}))


def queries_only(asked: Asked, response: Response) -> None:
    """Refuse the list without a query."""
    if asked.path == ROUNDS and not asked.query:
        become(response, Response(400, {"error": "limit is missing"}))


def one_less(asked: Asked, response: Response) -> None:
    """Have one update less than the limit of a page, from three on."""
    records = response.json["records"] if asked.path == ROUNDS and response.status == 200 else []
    if len(records) > SEVERAL and query_of(asked).get("limit") == str(len(records)):
        records.pop()


def turned_with_bound(asked: Asked, response: Response) -> None:
    """List the updates of a page with a bound the other way round."""
    if asked.path == ROUNDS and "before" in asked.query and response.status == 200:
        response.json["records"].reverse()


def as_it_is(asked: Asked, response: Response) -> None:
    """Do not decode a limit."""
    if asked.path == "/api/blocks" and "%3" in asked.query:
        become(response, Response(400, {"error": "no number"}))


HTTP: list[tuple[str, Http]] = [
    ("NT-RULE-120", New()),
    ("NT-RULE-121", on("/api/model", put("chain_id", "older"))),
    ("NT-RULE-122", other_losses),
    ("NT-RULE-123", other_gas),
    ("NT-RULE-124", on(ROUNDS, roots_apart)),
    ("NT-RULE-125", on("/api/blocks", backwards)),
    ("NT-RULE-126", on("/api/account", one_key)),
    ("NT-RULE-127", on("/api/validators", secret_told)),
    ("NT-RULE-128", on("/api/blocks", more_counted)),
    ("NT-RULE-129", on("/api/validators", put("validators", [{"bond": "-5", "power": 3}]))),
    ("NT-RULE-131", on("/api/network", put("ready", False))),
    ("NT-RULE-132", on(ROUNDS, put("index_round", 1))),
    ("NT-RULE-133", on(ROUNDS, rooted_otherwise)),
    ("NT-RULE-134", on(REQUEST, put("request_id", "0" * 64))),
    ("NT-RULE-135", on(REQUEST, put("status", "Completed"))),
    ("NT-RULE-136", on("/api/validators", twice)),
    ("NT-RULE-137", on("/api/model/checkpoint.json", put("bytes", 5))),
    ("NT-RULE-138", on(VIEW, put("chain_id", CHAIN))),
    ("NT-RULE-139", on("/healthz", put("height", 1))),
    ("NT-RULE-140", failing_for_names),
    ("NT-RULE-141", newest_instead),
    ("NT-RULE-142", nobody_at_all),
    ("NT-RULE-143", in_small_letters),
    ("NT-RULE-144", all_paths),
    ("NT-RULE-145", deleting),
    ("NT-RULE-146", knowing_tokens),
    ("NT-RULE-147", begun_alike),
    ("NT-RULE-148", begun_digests),
    ("NT-RULE-149", Behind()),
    ("NT-RULE-150", called("status", old_status)),
    ("NT-RULE-151", called("block", numbers_unread)),
    ("NT-RULE-152", called("block", any_height)),
    ("NT-RULE-153", called("validators", equal_powers)),
    ("NT-RULE-154", called("unconfirmed_txs", served)),
    ("NT-RULE-155", on("/login", to_another_join, status=302)),
    ("NT-RULE-156", failing_for_arrays),
    ("NT-RULE-157", believing),
    ("NT-PAGE-020", none_is_all),
    ("NT-PAGE-021", queries_only),
    ("NT-PAGE-022", one_less),
    ("NT-PAGE-023", turned_with_bound),
    ("NT-PAGE-024", as_it_is),
]
