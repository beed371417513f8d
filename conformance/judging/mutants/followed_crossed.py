"""Mutants that mix up what is under way at the same time; see `followed.py`."""

import time
from typing import Any

from conformance.judging.hooks import CONFIG, INFERENCE, Grpc, Http, inference
from conformance.judging.toy.answers import Asked, Response

# So long does a mutant work on a request, in seconds: others come meanwhile.
WORKS_S = 0.05


class LatestText:
    """A node whose texts depend on the prompt, and on that of the request that came last."""

    def __init__(self) -> None:
        self.latest = ""

    def of_latest(self, prompt: str, words: list[str]) -> list[str]:
        """Return the words, in an order that the latest prompt gives, after a while."""
        self.latest = prompt
        time.sleep(WORKS_S)
        first = len(self.latest) % max(len(words), 1)
        return words[first:] + words[:first]

    def result(self, body: Any, response: Response) -> None:
        """Change a result."""
        words = response.json["text"].split()
        response.json["text"] = " ".join(self.of_latest(body["prompt"], words))

    def stream(self, body: Any, response: Response) -> None:
        """Change the tokens of a stream."""
        events = response.events or []
        words = self.of_latest(body["prompt"], [event["token"] for event in events[:-1]])
        for event, word in zip(events, words, strict=False):
            event["token"] = word


class OpenMeanwhile:
    """A node that serves the configuration to everybody while it makes a text."""

    def __init__(self) -> None:
        self.making = 0

    def __call__(self, asked: Asked, response: Response) -> None:
        """Make texts slowly, and look at no token meanwhile."""
        if asked.path == INFERENCE and response.status == 200:
            self.making += 1
            time.sleep(WORKS_S)
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


HTTP: list[tuple[str, Http]] = [
    ("NA-INF-047", inference(LatestText().result)),
    ("NA-INF-047", inference(LatestText().stream, stream=True)),
    ("NA-AUTH-035", OpenMeanwhile()),
]
GRPC: list[tuple[str, Grpc]] = [("PL-FWD-015", LatestPass())]
