"""Mutants that take one request for another, before it or at the same time; see `followed.py`."""

import json
import time
from dataclasses import replace
from typing import Any

from conformance.checks.dht import distance
from conformance.judging.hooks import CONFIG, INFERENCE, Grpc, Http, inference
from conformance.judging.mutants.followed_places import Learning
from conformance.judging.mutants.followed_refused import BALANCE, SEND, UNSTAKE
from conformance.judging.toy.answers import Asked, Response, Sent, error

# So long does a mutant work on a request, in seconds: others come meanwhile.
WORKS_S = 0.05
# So many nodes a search lists.
ROOM = 20


class LatestText:
    """A node that answers with the result, or with the events, of the request that came last."""

    def __init__(self) -> None:
        self.latest = Response()

    def __call__(self, body: Any, response: Response) -> None:
        """Take what the latest request left, after a while."""
        self.latest = Response(json=response.json, events=response.events)
        time.sleep(WORKS_S)
        if response.json:
            response.json = {**self.latest.json, "id": response.json["id"]}
        response.events = self.latest.events


class TextBefore:
    """A node that answers with the text of the request before."""

    def __init__(self) -> None:
        self.before: Any = None

    def __call__(self, body: Any, response: Response) -> None:
        """Give what was kept, and keep the text."""
        own = response.json["text"]
        response.json["text"] = own if self.before is None else self.before
        self.before = own


class OpenMeanwhile:
    """A node that serves the configuration to everybody while it makes a text."""

    def __init__(self) -> None:
        self.making = 0

    def __call__(self, asked: Asked, response: Response) -> None:
        """Make texts slowly, and look at no token meanwhile."""
        if asked.path == INFERENCE and response.status == 200:
            self.making += 1
            time.sleep(10 * WORKS_S)
            self.making -= 1
        if self.making and asked.path == CONFIG and response.status == 401:
            response.status, response.json = 200, {"node": {}}


class LatestPass:
    """A node that computes a pass from the tensor of the pass that came last."""

    def __init__(self) -> None:
        self.latest: Any = None

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Answer with what the latest pass came to, after a while."""
        if called != "PipelineForward" or isinstance(answer, str) or not answer.get("success"):
            return answer
        self.latest = answer
        time.sleep(WORKS_S)
        return {**self.latest, "request_id": answer["request_id"]}


class OneTime:
    """A node whose transfers all have the time of the first."""

    def __init__(self) -> None:
        self.first = ""

    def __call__(self, asked: Asked, response: Response) -> None:
        """Put the first time into each transfer."""
        if asked.path == SEND and response.status == 200:
            self.first = self.first or response.json["timestamp"]
            response.json["timestamp"] = self.first


class NotTheWhole:
    """A node that does not let go of all that is staked."""

    def __init__(self) -> None:
        self.staked = 0.0

    def __call__(self, asked: Asked, response: Response) -> None:
        """Remember what is staked."""
        if asked.path == BALANCE and response.status == 200:
            self.staked = response.json["balances"]["staked"]

    def rewrite(self, sent: Sent) -> Sent:
        """Ask for more than there is instead of all."""
        if sent.target != UNSTAKE or f"{self.staked}".encode() not in sent.body:
            return sent
        return replace(sent, body=json.dumps({"amount": 2 * self.staked + 1}).encode())


def prefixed(asked: Asked, response: Response) -> None:
    """Name requests in blocks in another way than where they are read."""
    if asked.path.startswith("/api/block/") and response.status == 200:
        text = json.dumps(response.json)
        response.json = json.loads(text.replace('"request_id": "', '"request_id": "0x'))
    if asked.path == "/api/inference/request" and "id=0x" in asked.query:
        response.__dict__.update(error(404, "NOT_FOUND", "no such request").__dict__)


HTTP: list[tuple[str, Http]] = [
    ("NA-INF-047", inference(LatestText())),
    ("NA-INF-047", inference(LatestText(), stream=True)),
    ("NA-INF-065", inference(TextBefore())),
    ("NA-AUTH-035", OpenMeanwhile()),
    ("NA-SANE-046", OneTime()),
    ("NA-WALLET-058", NotTheWhole()),
    ("LIM-008", prefixed),
]


class ByRequest:
    """A node that keeps passes by their request_id alone."""

    def __init__(self) -> None:
        self.taken: set[str] = set()

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Know nothing of a request whose gradients have been taken."""
        if called != "PipelineBackward" or isinstance(answer, str) or not answer.get("success"):
            return answer
        if request.request_id in self.taken:
            return {"success": False, "error_message": "no such pass"}
        self.taken.add(request.request_id)
        return answer


class OneBucket(Learning):
    """A table that lists only those whose IDs begin as the target does."""

    def __call__(self, called: str, request: Any, answer: Any) -> Any:
        """Learn of each sender, and list those of one bucket, the nearest first."""
        self.learn(called, request, answer)
        if isinstance(answer, str) or request is None or called != "DHTFindNode":
            return answer
        target = request.target_id
        near = [node for node in self.known if node[:1] == target[:1]]
        near.sort(key=lambda node: distance(node, target))
        return {**answer, "nodes": [self.known[node] for node in near[:ROOM]]}


GRPC: list[tuple[str, Grpc]] = [
    ("PL-FWD-015", LatestPass()),
    ("PL-BWD-010", ByRequest()),
    ("DH-032", OneBucket()),
]
