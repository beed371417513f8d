r"""Spans for OpenTelemetry, imported only on a node that exports them (decision 0200).

Terms: a *trace* is everything that was caused by one request, on whatever nodes; a *span* is a part
of it with a beginning and an end; an *event* is a moment in a span.

=========================  ======  ================================================================
span                       kind    covers
=========================  ======  ================================================================
``POST /v1/...``           server  a request that generates, from its arrival to its answer's end
``node.NodeService/...``   server  the same over gRPC; or a holder's part of a step, and the hops
                                   after it
``chat MODEL``, or         \-      a generation, with the attributes ``gen_ai.*``
``text_completion MODEL``
``queue``, ``prefill``,    \-      its wait for a place, the time to the first token, and the rest
``decode``
``forward``                client  one step's calls to the holders of the path
``sampling``               \-      the choice of a token from the logits
``queue``, ``compute``     \-      in a holder's span: its wait, and its layers
``stream``                 \-      the answer, from its first byte to its last
=========================  ======  ================================================================

Invariants: nothing here waits, and nothing sends: the SDK's own thread exports, from a queue that
drops spans when it is full; the number of spans of a request is bounded, whatever its length; no
span has a word of a prompt or an answer, a token, an address, or an id that a stranger chose.
"""

from meshnode.services.tracing.calls import trace_calls
from meshnode.services.tracing.export import ExporterMissing, serve_export, start_export
from meshnode.services.tracing.tracer import Tracing

__all__ = ["ExporterMissing", "Tracing", "serve_export", "start_export", "trace_calls"]
