"""The rules of a request that another node passes on (interface 4.1; decision 0218).

Its client may have used either HTTP interface, so the parameters of both are there.
"""

from __future__ import annotations

from meshnode.domain.chat_rules import MAX_TOP_LOGPROBS
from meshnode.domain.errors import InvalidRequest
from meshnode.domain.generation import GenerationRequest
from meshnode.domain.inference_rules import MAX_PROMPT_BYTES, generation_request
from meshnode.domain.openai_rules import MAX_PENALTY

MAX_END_TOKENS = 64
"""More than any chat template ends its messages with."""


def validate_forwarded(request: GenerationRequest) -> None:
    """Raise InvalidRequest unless all values are within the ranges that clients have.

    The seed has all 64 bits, as in OpenAI's interface, and the prompt may be empty, as there.
    """
    generation_request(
        {
            "prompt": request.prompt or " ",
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "top_p": request.top_p,
            "top_k": request.top_k,
            "stop": request.stop,
        }
    )
    for name in ("frequency_penalty", "presence_penalty"):
        if not -MAX_PENALTY <= getattr(request, name) <= MAX_PENALTY:
            raise InvalidRequest(name, f"must be from {-MAX_PENALTY:g} to {MAX_PENALTY:g}")
    if request.logprobs is not None and not 0 <= request.logprobs <= MAX_TOP_LOGPROBS:
        raise InvalidRequest("logprobs", f"must be from 0 to {MAX_TOP_LOGPROBS}")
    if len((request.json_schema or "").encode()) > MAX_PROMPT_BYTES:
        raise InvalidRequest("json_schema", f"must be at most {MAX_PROMPT_BYTES} bytes")
    if len(request.end_tokens) > MAX_END_TOKENS:
        raise InvalidRequest("end_tokens", f"must be at most {MAX_END_TOKENS}")
