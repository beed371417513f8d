"""Interface 4.1: generations one behind the other, each with the text of its own prompt.

A prompt that has another text each time shows nothing. Where its second text in a row is always the
same, the first one behind another prompt has to be that text, too.
"""

from itertools import pairwise

from conformance.checks.generations import PROMPTS
from conformance.context import Context
from conformance.editions import SEVENTH
from conformance.findings import Skipped
from conformance.registry import requirement
from conformance.strictjson import Json, brief

IN_TURN = "NA-INF-065"
SHORT, ROUNDS = 8, 2


@requirement(IN_TURN)
def inference_turns(context: Context) -> None:
    """POST /inference for two prompts with temperature 0, each twice, in turn."""
    if context.edition < SEVENTH:
        raise Skipped("later editions ask for it")
    order = [prompt for prompt in PROMPTS[:2] for _ in range(2)] * ROUNDS
    answers = [context.infer(_body(prompt)) for prompt in order]
    texts = [str((answer.json_object() or {}).get("text") or "") for answer in answers]
    if not all(answer.ok for answer in answers) or not all(texts):
        raise Skipped("a prompt has no text")
    # The second one in a row of each prompt.
    settled = {prompt: {*texts[at + 1 :: 4]} for at, prompt in ((0, PROMPTS[0]), (2, PROMPTS[1]))}
    if (
        any(len(found) > 1 for found in settled.values())
        or len(set(map(min, settled.values()))) < 2
    ):
        raise Skipped("a prompt has not always the same text, or another one has it too")
    # The first one of each that follows another prompt.
    turned = [at for at, (one, other) in enumerate(pairwise(order), 1) if one != other]
    own = [texts[at] in settled[order[at]] for at in turned]
    stale = [texts[at] in settled[order[at - 1]] for at in turned]
    if all(own) or all(stale):
        why = (
            f"{brief(order[turned[0]])} has the text of {brief(order[turned[0] - 1])}, asked before"
        )
        context.judge(IN_TURN, all(own), f"{why}: {brief(texts[turned[0]])}", *answers)


def _body(prompt: str) -> dict[str, Json]:
    return {"prompt": prompt, "max_tokens": SHORT, "temperature": 0}
