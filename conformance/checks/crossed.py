"""Interface 4.1, 4.3, 5 and 6: requests that are under way at the same time, each for itself.

A model may answer a prompt differently where it serves others beside it. So a text that is not its
own one is a violation only if it is that of another request, and both are always the same alone.
"""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import cycle, islice, repeat, takewhile

from conformance.checks.auth import INVENTED
from conformance.checks.effects import stream_values
from conformance.checks.generations import PROMPTS
from conformance.checks.guards import smallest_bodies
from conformance.checks.mixed_ids import turned
from conformance.checks.mixed_passes import output_of
from conformance.checks.node_reads import AUTH_READS
from conformance.checks.passes import send_forward
from conformance.checks.stream import LONG
from conformance.context import Context
from conformance.editions import FIFTH, SIXTH
from conformance.findings import Skipped
from conformance.grpcwire import Reply
from conformance.httprequest import ANONYMOUS
from conformance.httpwire import Answer, Unanswered
from conformance.passive.events import is_final
from conformance.registry import requirement
from conformance.strictjson import Json, brief

OWN_TEXT, OWN_TENSOR, GUARDED = "NA-INF-047", "PL-FWD-015", "NA-AUTH-035"
AT_ONCE, ROUNDS = 4, 2
# So many texts beside a stream.
BESIDE = 6
UNAUTHORIZED = 401
TOKENS = 16
# So many tokens that are another's are no chance, if so many of them are unlike.
RUN, UNLIKE = 5, 3
# As many reads as are made beside a generation, at most.
MOST_READ = 200
# A text in pieces: the tokens of a stream, or the whole of a result.
Pieces = tuple[str, ...]
_Ask = Callable[[Context, dict[str, Json]], tuple[Answer, Pieces]]


def _bodies() -> list[dict[str, Json]]:
    return [{"prompt": prompt, "max_tokens": TOKENS, "temperature": 0} for prompt in PROMPTS[:2]]


def _streamed(context: Context, body: dict[str, Json]) -> tuple[Answer, Pieces]:
    answer, values = stream_values(context, body)
    return answer, tuple(str(value.get("token")) for value in values if not is_final(value))


def _result(context: Context, body: dict[str, Json]) -> tuple[Answer, Pieces]:
    answer = context.infer(body)
    text = (answer.json_object() or {}).get("text")
    if not answer.ok or not isinstance(text, str) or not text.strip():
        raise Skipped(f"POST /inference returned no text, status {answer.status}")
    return answer, (text,)


def _alike(one: Pieces, other: Pieces) -> int:
    """How many pieces two texts begin with alike."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def is_crossed(found: Pieces, own: Pieces, other: Pieces) -> bool:
    """Whether a text goes on as another one does, or is the other one."""
    if len(found) == len(own) == 1:
        return found == other != own
    same = _alike(found, own)
    alike = found[same:][: _alike(found[same:], other[same:])]
    return len(alike) >= RUN and len(set(alike)) >= UNLIKE


@requirement(OWN_TEXT)
def generations_crossed(context: Context) -> None:
    """POST /inference for two prompts, each by itself, then both at the same moment."""
    skipped: list[Skipped] = []
    tries: list[Callable[[Context], None]] = [
        partial(_judge_texts, ask=ask) for ask in (_result, _streamed)
    ]
    if context.edition >= FIFTH:
        tries.append(_judge_beside)
    for each in tries:
        try:
            each(context)
        except Skipped as reason:
            skipped.append(reason)
    if OWN_TEXT not in context.ruled_on() and skipped:
        raise skipped[0]


def _by_themselves(context: Context, ask: _Ask) -> list[tuple[Answer, Pieces]]:
    """Return the text of each prompt. Raises `Skipped` if it has not always the same one."""
    alone = [[ask(context, body) for _ in range(2)] for body in _bodies()]
    texts = [pair[0][1] for pair in alone]
    if texts[0] == texts[1] or any(first[1] != again[1] for first, again in alone):
        raise Skipped("a prompt has not always the same text, or another one has it too")
    return [first for first, _ in alone]


def _judge_text(
    context: Context, at: int, alone: list[tuple[Answer, Pieces]], answer: Answer, text: Pieces
) -> None:
    (first, own), (second, other) = alone[at], alone[1 - at]
    why = f"{brief(PROMPTS[at])}, asked beside {brief(PROMPTS[1 - at])}, has the"
    why = f"{why} text of that: {brief(''.join(text), 120)}"
    context.judge(OWN_TEXT, not is_crossed(text, own, other), why, first, second, answer)


def _judge_beside(context: Context) -> None:
    """Generate a text for the second prompt while long streams for the first one are sent."""
    alone = _by_themselves(context, _result)
    streamed, body = _bodies()
    asks = repeat(partial(context.infer, body), BESIDE)
    read, _ = meanwhile(context, {**streamed, "max_tokens": LONG, "stream": True}, asks)
    for answer in read:
        text = (answer.json_object() or {}).get("text")
        if answer.ok and isinstance(text, str):
            _judge_text(context, 1, alone, answer, (text,))


def _judge_texts(context: Context, ask: _Ask) -> None:
    alone = _by_themselves(context, ask)
    for _ in range(ROUNDS):
        bodies = list(islice(cycle(_bodies()), AT_ONCE))
        with context.http.gate.holding(AT_ONCE), ThreadPoolExecutor(AT_ONCE) as pool:
            found = list(pool.map(lambda body: ask(context, body), bodies))
        for at, (answer, text) in enumerate(found):
            _judge_text(context, at % 2, alone, answer, text)


@requirement(OWN_TENSOR)
def passes_crossed(context: Context) -> None:
    """Send two tensors forward, each by itself, then both at the same moment."""
    tensors = turned(context)

    def send(at: int) -> Reply:
        return send_forward(context, hidden_states=tensors[at % 2])

    alone = [[send(at) for _ in range(2)] for at in range(2)]
    outputs = [output_of(first) for first, _ in alone]
    if not all(outputs) or outputs[0] == outputs[1]:
        raise Skipped("a pass is refused, or two tensors have one result")
    if any(output_of(first) != output_of(again) for first, again in alone):
        raise Skipped("a tensor has not always the same result")
    for number in range(ROUNDS):
        # A node may serve the calls of one connection one after another.
        many = AT_ONCE if number % 2 and context.edition >= SIXTH else 0
        with context.grpc.spread(many), ThreadPoolExecutor(AT_ONCE) as pool:
            replies = list(pool.map(send, range(AT_ONCE)))
        for at, reply in enumerate(replies):
            crossed = output_of(reply) == outputs[1 - at % 2]
            why = "of passes at the same time one has the result of another, to the bit"
            context.judge(OWN_TENSOR, not crossed, why, alone[1 - at % 2][0], reply)


def meanwhile(
    context: Context, body: dict[str, Json], reads: Iterable[Callable[[], Answer]]
) -> tuple[list[Answer], list[Answer]]:
    """Make a generation for each account, and read one after the other as long as it lasts.

    Returns what was read, and the generations. Raises `Skipped` if none of them is made.
    """
    begun, read = threading.Event(), list[Answer]()

    def ask(at: int) -> Answer:
        begun.set()
        account = context.target.second if at % 2 else context.target.valid
        return context.infer(body, credential=account)

    with ThreadPoolExecutor(2) as pool:
        asked: list[Future[Answer]] = [pool.submit(ask, at) for at in range(2)]
        begun.wait()
        for reading in islice(reads, MOST_READ):
            read.append(reading())
            if all(one.done() for one in asked):
                break
        try:
            made = [one.result() for one in asked]
        except Unanswered as reason:
            raise Skipped(f"no generation ends: {reason.why}") from None
    if not any(answer.ok for answer in made):
        raise Skipped(f"no generation is made, status {made[0].status}")
    return read, made


@requirement(GUARDED)
def guards_meanwhile(context: Context) -> None:
    """GET and PATCH without a valid token, while generations of both accounts are made."""
    readers: list[Callable[[], Answer]] = [
        partial(context.api, "GET", resource.path, credential=reader)
        for resource in AUTH_READS
        for reader in (ANONYMOUS, INVENTED)
        if context.api("GET", resource.path, credential=reader).status == 401
    ]
    if context.edition >= SIXTH:
        readers += _changes(context)
    if not readers:
        raise Skipped("no read without a valid token is refused, while nothing is generated either")
    body: dict[str, Json] = {"prompt": PROMPTS[0], "max_tokens": LONG}
    bodies = [body, {**body, "stream": True}] if context.edition >= FIFTH else [body]
    for each in bodies:
        read, made = meanwhile(context, each, cycle(readers))
        open_ones = [answer for answer in read if answer.ok]
        shown = f"{len(open_ones)} of {len(read)} requests without a valid token are served"
        why = f"{shown} while a {'stream is sent' if 'stream' in each else 'generation is made'}"
        context.judge(GUARDED, not open_ones, why, *(open_ones or read)[:2], *made[:1])


def _changes(context: Context) -> list[Callable[[], Answer]]:
    """Return changes of a value to itself without a valid token, where these are refused."""
    body = next((body for method, _, body in smallest_bodies(context) if method == "PATCH"), None)
    asks = [
        partial(context.api, "PATCH", "/config", credential=changer, json_body=body)
        for changer in (ANONYMOUS, INVENTED)
    ]
    return [ask for ask in asks if body is not None and ask().status == UNAUTHORIZED]
