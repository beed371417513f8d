"""Interface 5: a declared token that is good, refused with 401, and good again within one run.

A token that expires is refused from then on; so only a 401 between two answers with this token says
something. Looked at are readings of the routes marked Auth: no body can be the reason of the 401.
"""

import threading

from conformance.findings import Findings
from conformance.httprequest import Credential
from conformance.httpwire import Answer
from conformance.passive.resources import OPEN, RESOURCES

STEADY = "NA-AUTH-022"
IDS = frozenset({STEADY})
UNAUTHORIZED = 401


class Tokens:
    """What the readings of a run have shown of each declared token."""

    def __init__(self) -> None:
        """Begin without any."""
        self._lock = threading.Lock()
        self._served: dict[Credential, Answer] = {}
        self._refused: dict[Credential, Answer] = {}

    def judge(
        self, findings: Findings, credential: Credential, operation: tuple[str, str], answer: Answer
    ) -> None:
        """Rule on a declared token, after an operation, a method and a path, with it."""
        method, path = operation
        if method != "GET" or path in OPEN or operation not in RESOURCES:
            return
        with self._lock:
            before, refused = self._served.get(credential), self._refused.get(credential)
            if answer.status == UNAUTHORIZED and before is not None:
                self._refused.setdefault(credential, answer)
            if not answer.ok:
                return
            self._served[credential] = answer
            if before is None or refused is None or not _follows(refused, answer):
                return
            del self._refused[credential]
        why = f"{credential.shown} is served, gets 401 for GET {path_of(refused)}, and is served"
        findings.fails(STEADY, f"{why} again", before, refused, answer)


def path_of(answer: Answer) -> str:
    """Return the path of the request, as it was sent."""
    url: str = answer.exchange.request["url"]
    return url.partition("/api/v1")[2]


def _follows(earlier: Answer, later: Answer) -> bool:
    """Return whether a request was sent only after another one was answered."""
    ended_s = earlier.exchange.at_s + earlier.exchange.took_ms / 1000
    return later.exchange.at_s >= ended_s
