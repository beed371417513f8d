"""Faults of the stream of interface 6: events left out, repeated, moved or of another form."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

from conformance.judging.derived.fault import Fault, http_fault
from conformance.judging.hooks import INFERENCE
from conformance.judging.toy.answers import Asked, Response

Events = list[Any]
KEY = f"POST {INFERENCE}"


def stream_faults() -> Iterator[Fault]:
    """Yield the faults of the order, the number and the form of events."""
    for name, change in _CHANGES.items():
        yield http_fault("stream of events", f"{KEY} {name}", KEY, _hook(change))


def _hook(change: Callable[[Events], Events]) -> Callable[[Asked, Response], object]:
    def hook(asked: Asked, response: Response) -> None:
        # A change of the order needs two tokens and the final event.
        if response.events is not None and response.status == 200 and len(response.events) > 2:
            response.events = change(copy.deepcopy(response.events))

    return hook


def _renumbered(index: Callable[[int], Any]) -> Callable[[Events], Events]:
    return lambda events: (
        [{**event, "index": index(at)} for at, event in enumerate(events[:-1])] + events[-1:]
    )


_CHANGES: dict[str, Callable[[Events], Events]] = {
    "without its final event": lambda events: events[:-1],
    "with its final event twice": lambda events: [*events, events[-1]],
    "with its final event first": lambda events: [events[-1], *events[:-1]],
    "with a token after the final event": lambda events: [*events, events[0]],
    "without its first token": lambda events: events[1:],
    "with its first token twice": lambda events: [events[0], *events],
    "with its tokens reversed": lambda events: [*events[-2::-1], events[-1]],
    "with indices from 1": _renumbered(lambda at: at + 1),
    "with the same index": _renumbered(lambda at: 0),
    "with indices as text": _renumbered(str),
    "with indices that go down": _renumbered(lambda at: -at),
    "with another last word": lambda events: [*events[:-1], {**events[-1], "token": "[END]"}],
    "with a bare [DONE]": lambda events: [*events, "[DONE]"],
    "with a bare [DONE] instead of its final event": lambda events: [*events[:-1], "[DONE]"],
    "as arrays": lambda events: [[event] for event in events],
    "within data": lambda events: [{"data": event} for event in events],
    "with all tokens in one array": lambda events: [events],
    "with nothing": lambda events: [],
}
