"""Interface 7.3: what becomes of a connection of gRPC when a request on it is bad."""

import time

from conformance import messages
from conformance.context import Context
from conformance.editions import FIFTH
from conformance.findings import Skipped
from conformance.grpcwire import Reply
from conformance.httpwire import Unanswered
from conformance.registry import requirement

KEPT = "GR-CODE-016"
TRIES, NOTICED_S = 3, 0.3
# A field that has more bytes than there are.
BAD = b"\x0a\x05ab"
READY = "READY"


@requirement(KEPT)
def grpc_kept(context: Context) -> None:
    """Send a good request, then one that is no message, and watch the connection."""
    if context.edition < FIFTH:
        raise Skipped("later editions ask for it")
    ended = list[Reply]()
    for _ in range(TRIES):
        good = context.grpc.call("GetCheckpointInfo", messages.make("GetCheckpointInfoRequest"))
        with context.grpc.watching() as seen:
            time.sleep(NOTICED_S)
            before = seen[-1:]
            try:
                bad = context.grpc.call("DHTFindNode", BAD)
            except Unanswered:
                # Others judge a request that ends without an answer.
                continue
            time.sleep(NOTICED_S)
            after = seen[-1:]
        if before != [READY]:
            raise Skipped("the connection is ended after a good request, too")
        if after == [READY]:
            context.holds(KEPT, good, bad)
            return
        ended.append(bad)
    if len(ended) == TRIES:
        context.fails(KEPT, f"{TRIES} times a connection is ended behind a bad request", *ended)
