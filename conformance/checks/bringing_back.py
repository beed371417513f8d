"""Interface 2.3 and 4.3: a gradient comes back to the suite, which is where its pass came from.

The suite gives its own address as `sender_url` of a pass. How the URL is written is not specified,
so its usual forms are tried.
"""

from dataclasses import dataclass
from itertools import product
from typing import Any

from conformance import messages
from conformance.checks import passes
from conformance.checks.forms import FORMS, values_for
from conformance.checks.kept_passes import Fields, metadata_of, way_back
from conformance.checks.peering import AGAIN_S, Scene
from conformance.context import Context
from conformance.editions import FOURTH
from conformance.findings import Skipped
from conformance.grpcwire import Reply
from conformance.peer.watch import PEER, Call

BACKWARD, BACK_REQUEST = "PipelineBackward", "PipelineBackwardRequest"


@dataclass(frozen=True)
class Returned:
    """A gradient that the node took, and the calls that it made of the peer about it."""

    ids: tuple[str, str]
    reply: Reply
    shape: list[int]
    scene: Scene

    @property
    def calls(self) -> list[Call]:
        """The gradients that have come back since."""
        return [call for call in self.scene.calls if is_back(call)]


def is_back(call: Call) -> bool:
    """Return whether a call is a gradient that comes to the suite's own node."""
    return call.operation == BACKWARD and call.post == PEER


def send_from(
    context: Context,
    url: str,
    request_id: str | None = None,
    session_id: str | None = None,
    **fields: Any,
) -> tuple[dict[str, str], Any]:
    """Send a pass from `url`; return its IDs and the answer. Raises `Skipped` if it is refused.

    `fields` are those that differ from the usual pass.
    """
    ids = {"session_id": session_id, "request_id": request_id}
    named = {key: ident or passes.fresh_id() for key, ident in ids.items()}
    reply = passes.send_forward(context, metadata_of(context), sender_url=url, **named, **fields)
    passed: Any = reply.message
    why = f"{reply.code} {reply.details}" if passed is None else passed.error_message
    if passed is None or not passed.success:
        raise Skipped(f"the pass whose gradients would go back was not made: {why}")
    return named, passed


def send_gradients(
    context: Context, named: dict[str, str], passed: Any, *, turned: bool = False
) -> Reply:
    """Send the gradients of a pass. Raises `Skipped` if the node does not take them.

    Those that are turned round have other values.
    """
    shape = passes.gradient_shape(context, passed)
    reply, refused = try_gradients(context, named, passed, shape, turned=turned)
    if refused:
        raise Skipped(refused)
    return reply


def try_gradients(
    context: Context, named: dict[str, str], passed: Any, shape: list[int], *, turned: bool = False
) -> tuple[Reply, str]:
    """Send the gradients of a pass; return the answer, and why they are refused if they are."""
    declared = context.target.pipeline
    values = values_for(shape)[:: -1 if turned else 1]
    message = messages.make(
        BACK_REQUEST,
        **named,
        grad_output=FORMS[passes.form_of(context)](values, shape),
        grad_shape=shape,
        target_shard=declared["shard"],
    )
    timeout_s = context.target.inference_timeout_s
    reply = context.grpc.call(BACKWARD, message, timeout_s=timeout_s, metadata=metadata_of(context))
    done: Any = reply.message
    why = f"{reply.code} {reply.details}" if done is None else done.error_message
    taken = done is not None and done.success
    return reply, "" if taken else f"the gradients were refused: {why}"


def send_and_return(context: Context, url: str, **fields: Any) -> Returned:
    """Send a pass from `url`, then its gradient. Raises `Skipped` if the node takes them not.

    A node may answer once it has passed them on, and refuse what the suite has refused.
    """
    scene = Scene(context.peer)
    named, passed = send_from(context, url, **fields)
    shape = passes.gradient_shape(context, passed, fields.get("hidden_shape"))
    reply, refused = try_gradients(context, named, passed, shape)
    returned = Returned((named["session_id"], named["request_id"]), reply, shape, scene)
    if refused and not returned.calls:
        raise Skipped(refused)
    return returned


def bring_back(context: Context, *, afresh: bool = False) -> Returned:
    """Have a gradient come back, with the first form of the URL that brings one.

    A node may take such a pass only from those that it has known for a while. Where none has come
    back before, it is tried again only ``afresh``.
    """
    peer, known = context.peer, context.service
    ends = peer.time.now() + peer.patience.recover_s
    while True:
        taken, why = None, Skipped("no gradient has come back to the suite before")
        new = known.sender_urls is None or (afresh and not known.sender_urls)
        urls = peer.sender_urls if new else known.sender_urls or ()
        # A node that sees no sender_url may keep a pass for its labels.
        ways: tuple[Fields, ...] = ({}, way_back(context)) if context.edition >= FOURTH else ({},)
        for way, url in product(ways, urls):
            if taken is not None and way:
                break
            others = _of_http2(context)
            try:
                taken = send_and_return(context, url, **way)
            except Skipped as refused:
                why = refused
                continue
            within_s = peer.patience.settle_s
            came = peer.wait(lambda found=taken: bool(found.calls), within_s)  # type: ignore[misc]
            if url.startswith("http"):
                known.at_http = not came and _of_http2(context) > others
            if came:
                known.sender_urls = (url,)
                return taken
        if taken is not None:
            known.sender_urls = ()
            return taken
        if peer.time.now() >= ends:
            raise why
        peer.wait(lambda: False, AGAIN_S)


def _of_http2(context: Context) -> int:
    """Return how many connections of HTTP/2, as gRPC has, have come to the peer's HTTP port."""
    return sum(link.http2 for link in context.peer.posts[PEER].http.links)
