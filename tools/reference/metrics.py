"""The page of all metrics, from a monitor whose node has nothing to report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from meshnode.domain.metering import (
    ChargeMeter,
    HttpMeter,
    InferenceMeter,
    TrafficMeter,
    TrainingFigures,
)
from meshnode.services.monitoring import ChainFigures, Monitor, Monitored
from meshnode.services.pipeline.records import HopRecorder
from tools.reference.tables import code, table

LABELS = {
    "model_name": "the served model",
    "model_hash": "the hash of the model, with its weights",
    "method": "of HTTP",
    "route": "the route's pattern, never the path that a client sent",
    "status": "of HTTP; 0 if the client left before",
    "operation": "of gRPC",
    "code": "the gRPC status",
    "kind": "what the messages of an operation carry",
    "direction": "`sent` or `received`",
    "outcome": "`stop`, `length`, `cancelled` or `failed`",
    "finished_reason": "`stop` or `length`",
    "phase": "of a step at a remote hop",
    "check": "a check of `/api/v1/health`",
    "version": "the node's",
    "model": "the served model",
}
SUFFIX = {"counter": "_total", "info": "_info"}


class Nothing(int):
    """Stands for whatever the monitor asks of a node: zero, empty, and without end the same."""

    def __getattr__(self, name: str) -> Nothing:
        """The same for every attribute."""
        return self

    def __call__(self, *_: object) -> Nothing:
        """The same for every call."""
        return self

    def __getitem__(self, _: object) -> Nothing:
        """The same for every key."""
        return self

    def __iter__(self) -> Iterator[Any]:
        """Nothing."""
        return iter(())

    def __len__(self) -> int:
        """Zero."""
        return 0


class _Executor(Nothing):
    meter = InferenceMeter()


def _monitor() -> Monitor:
    nothing: Any = Nothing()
    executor: Any = _Executor()
    return Monitor(
        Monitored(
            version="",
            model="",
            executor=executor,
            driven=nothing,
            hops=HopRecorder(),
            traffic=TrafficMeter(),
            http=HttpMeter(),
            health=nothing,
            book=nothing,
            contacts=nothing,
            training=TrainingFigures,
            trains=nothing,
            chain=lambda: ChainFigures(0, 0, ChargeMeter()),
        )
    )


def page() -> str:
    """The page. Raises KeyError for a label without words."""
    families = sorted(_monitor().collect(), key=lambda family: family.name)
    labels: set[str] = set()
    rows: dict[bool, list[tuple[str, ...]]] = {True: [], False: []}
    for family in families:
        names = list(getattr(family, "_labelnames", ()))
        if family.type == "info":
            names = ["version", "model"]
        labels.update(names)
        name = family.name + SUFFIX.get(family.type, "")
        row = (code(name), family.type, ", ".join(map(code, names)), family.documentation)
        rows[family.name.startswith("vllm:")].append(row)
    head = ("metric", "type", "labels", "meaning")
    return (
        "# Metrics\n\n"
        "`GET /metrics` is Prometheus' text format 0.0.4 ([decision 0170]"
        "(../../decisions/0170-metrics-for-prometheus.md)). Beside\nthese there are "
        "`process_*`, the figures of the process that every Prometheus client gives. Metrics of "
        "the chain are there while\nthe node has one. [How to monitor a node]"
        "(../how-to/monitor.md).\n\n## The node's own\n\n"
        + table(head, rows[False])
        + "\n## Under vLLM's names\n\nThe same figures for whoever already watches inference "
        "servers.\n\n"
        + table(head, rows[True])
        + "\n## Labels\n\nTheir values come from tables of the program, never from a client or "
        "a peer.\n\n"
        + table(("label", "meaning"), [(code(name), LABELS[name]) for name in sorted(labels)])
    )
