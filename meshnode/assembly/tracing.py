"""Whether this node records traces, and where they are hooked in (decision 0200).

Without the variables of OpenTelemetry nothing of it is imported, and each of the places that could
record a span tests one attribute for None.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import trio

from meshnode import __version__
from meshnode.domain.tokens import Scope
from meshnode.services.observing import Observers
from meshnode.services.pipeline.records import HopRecorder
from meshnode.supervise import Supervisor

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from meshnode.http.routes import Route
    from meshnode.services.tracing import Tracing

log = logging.getLogger(__name__)

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
NONE = "none"


def is_wanted(environ: Mapping[str, str]) -> bool:
    """Whether the environment says where spans go."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporter = environ.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    if exporter:
        return exporter != NONE
    return any(environ.get(name) for name in ENDPOINTS)


def propagates(environ: Mapping[str, str]) -> bool:
    """Whether W3C's contexts are taken and passed on; others never are."""
    names = environ.get("OTEL_PROPAGATORS") or "tracecontext"
    return "tracecontext" in (name.strip() for name in names.split(","))


async def start_tracing(
    nursery: trio.Nursery,
    run: Supervisor,
    environ: Mapping[str, str],
    hops: HopRecorder,
    *,
    node_id: str,
    model: str,
    routes: Iterable[Route[Any]],
) -> Tracing | None:
    """Start to record spans, if the environment asks for it and the extra is installed.

    The generations of ``hops`` and its observer are traced from then on. A cluster may set the
    variables for everything that runs in it, so a node without the extra says so and runs.
    """
    if not is_wanted(environ):
        return None
    try:
        from meshnode.services import tracing as service
    except ImportError as missing:
        log.warning("no traces: %s; install the extra meshnode[otel]", missing)
        return None
    facts = {
        "service.name": "meshnode",
        "service.version": __version__,
        "service.instance.id": node_id,
    }
    try:
        provider = service.start_export(environ, facts)
    except service.ExporterMissing as missing:
        log.warning("no traces: %s", missing)
        return None
    found = service.Tracing(
        provider,
        model=model,
        version=__version__,
        hops=hops.trace,
        routes=frozenset(
            route.path for route in routes if route.scope is Scope.INFER and route.method == "POST"
        ),
        propagates=propagates(environ),
    )
    hops.observer = Observers(hops.observer, found)
    await nursery.start(run, "traces", partial(service.serve_export, provider))
    return found
