"""Interface 2.3 and 4.3: stores and look-ups that are under way at the same time."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from conformance import messages
from conformance.checks.dht import NODE_ID_BYTES, SENDER
from conformance.context import Context
from conformance.editions import SIXTH
from conformance.findings import Skipped
from conformance.grpcwire import Reply
from conformance.httpwire import Unanswered
from conformance.registry import requirement
from conformance.strictjson import brief

OWN_VALUE = "DH-046"
# On so many, since a node may serve the calls of one connection one after another.
CONNECTIONS = 4
# So many values, and so many looks at each of them.
VALUES, LOOKS = 6, 3


@requirement(OWN_VALUE)
def dht_at_once(context: Context) -> None:
    """Call DHTStore for several keys at the same moment, then DHTFindValue for all of them."""
    if context.edition < SIXTH:
        raise Skipped("later editions ask for it")
    values = {os.urandom(NODE_ID_BYTES): f"192.0.2.{at + 1}:{9000 + at}" for at in range(VALUES)}

    def store(key: bytes) -> Reply:
        request = messages.make("DHTStoreRequest", sender=SENDER, key=key, value=values[key])
        return context.grpc.call("DHTStore", request)

    def look_up(key: bytes) -> Reply:
        request = messages.make("DHTFindValueRequest", sender=SENDER, key=key)
        return context.grpc.call("DHTFindValue", request)

    stored = dict(zip(values, _at_once(context, store, list(values)), strict=True))
    taken = [key for key, reply in stored.items() if reply.message and reply.message.success]
    if not taken:
        raise Skipped("no store succeeds")
    keys = [*taken] * LOOKS
    for key, reply in zip(keys, _at_once(context, look_up, keys), strict=True):
        answer = reply.message
        if answer is None:
            # It may be busy.
            continue
        found = answer.value if answer.found else None
        why = f"of {len(taken)} values that were stored at the same time the one under"
        why = f"{why} {key.hex()} is {brief(found)}, not {brief(values[key])}"
        context.judge(OWN_VALUE, found == values[key], why, stored[key], reply)


def _at_once(context: Context, call: Callable[[bytes], Reply], keys: list[bytes]) -> list[Reply]:
    """Make a call for each key, at the same moment, on some connections."""
    with context.grpc.spread(CONNECTIONS), ThreadPoolExecutor(len(keys)) as pool:
        try:
            return list(pool.map(call, keys))
        except Unanswered as reason:
            raise Skipped(f"of calls at the same time one is not answered: {reason.why}") from None
