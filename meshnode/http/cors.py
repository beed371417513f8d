"""Which pages of other origins may use the node API and OpenAI's interface (decision 0162).

None may unless the setting ``cors_origins`` lists them. No cookies are used anywhere, so a page
that is allowed needs a token all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

ANY = "*"
METHODS = "GET, POST, PATCH"
HEADERS = "Authorization, Content-Type, X-Meshnode-Trace"
SHOWN = "X-Request-Id, Retry-After, X-Meshnode-Trace"
"""Headers of answers that pages may read."""
MAX_AGE_S = 600


def listed_origins(text: str) -> frozenset[str]:
    """The origins in a text that has commas in between."""
    return frozenset(origin.lower().rstrip("/") for origin in text.split(",") if origin)


@dataclass(frozen=True, slots=True)
class Cors:
    """Knows the origins that are allowed."""

    origins: frozenset[str] = frozenset()

    def headers(self, origin: str | None, *, preflight: bool) -> Mapping[str, str]:
        """What an answer to a page of ``origin`` needs, so that its browser lets it be read."""
        if not self.origins:
            return {}
        # Caches must not give one origin the answer that another one got.
        varies = {"Vary": "Origin"}
        if origin is None or not (ANY in self.origins or origin in self.origins):
            return varies
        answer = {"Access-Control-Allow-Origin": origin, "Access-Control-Expose-Headers": SHOWN}
        if preflight:
            answer |= {
                "Access-Control-Allow-Methods": METHODS,
                "Access-Control-Allow-Headers": HEADERS,
                "Access-Control-Max-Age": str(MAX_AGE_S),
            }
        return answer | varies
