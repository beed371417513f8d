"""The node's figures in the form of Prometheus (decision 0170).

Every figure is counted by its owner as it happens, in plain numbers; only a scrape turns them into
metrics, so a request costs the same whether or not anybody scrapes. Names follow the conventions of
Prometheus: base units, ``_total`` for counters. The figures that monitors and gateways of inference
servers look for are there under vLLM's names too.

Invariant: the values of every label come from tables of this program, never from a client or peer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from meshnode.domain.units import SECOND_NS

if TYPE_CHECKING:
    from meshnode.domain.metering import (
        Buckets,
        ChargeMeter,
        HttpMeter,
        TrafficMeter,
        TrainingFigures,
    )
    from meshnode.services.executor import Executor
    from meshnode.services.health import Health
    from meshnode.services.peers import PeerBook
    from meshnode.services.pipeline.records import HopRecorder

KINDS: Mapping[str, str] = {
    "StreamInference": "inference",
    "UnaryInference": "inference",
    "PipelineForward": "activations",
    "SwarmForward": "activations",
    "Calls": "activations",
    "PipelineBackward": "gradients",
    "GossipGradient": "gradients",
    "GetCheckpoint": "weights",
    "GetCheckpointInfo": "weights",
    "GetWeights": "weights",
    "GossipTransaction": "chain",
    "GossipStake": "chain",
    "GossipProof": "proofs",
    "RequestProofValidation": "proofs",
    "GossipValidationVote": "proofs",
    "DHTPing": "dht",
    "DHTStore": "dht",
    "DHTFindNode": "dht",
    "DHTFindValue": "dht",
    "GetShardInfo": "peers",
    "GetSwarmStatus": "peers",
    "UpdatePeerCapacity": "peers",
}
"""What the messages of an operation carry. Operations of the standard services are ``other``."""


@dataclass(frozen=True, slots=True)
class ChainFigures:
    """The chain and the wallet, once there is a chain."""

    height: int
    time_ns: int
    """The time of the latest block, in nanoseconds since 1970."""
    charged: ChargeMeter


@dataclass(frozen=True, slots=True, kw_only=True)
class Monitored:
    """The owners of the figures."""

    version: str
    model: str
    executor: Executor
    driven: Callable[[], int]
    """Generations that wait for a place in the pipeline."""
    hops: HopRecorder
    traffic: TrafficMeter
    http: HttpMeter
    health: Health
    book: PeerBook
    contacts: Callable[[], int]
    """Nodes in the routing table of the DHT."""
    training: Callable[[], TrainingFigures]
    trains: Callable[[], bool]
    chain: Callable[[], ChainFigures | None]


class Monitor(Collector):
    """Handle: makes the metrics from the figures at each scrape."""

    def __init__(self, monitored: Monitored) -> None:
        """Nothing is counted here."""
        self._of = monitored
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def encode(self) -> tuple[bytes, str]:
        """All metrics in the text format 0.0.4, and its content type.

        The library's other format, OpenMetrics, writes ``vllm_`` where the name has a colon.
        """
        return generate_latest(self._registry), CONTENT_TYPE_PLAIN_0_0_4

    def describe(self) -> Iterable[Metric]:
        """Nothing, so that registering does not collect."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """All families of metrics but those of the process."""
        yield from self._node()
        yield from self._engine()
        yield from self._pipeline()
        yield from self._traffic()
        yield from self._network()
        yield from self._chain()
        yield from self._vllm()

    def _node(self) -> Iterator[Metric]:
        of = self._of
        facts = {"version": of.version, "model": of.model}
        yield InfoMetricFamily("meshnode_build", "Version and model.", facts)
        report = of.health.report()
        yield gauge("healthy", "1 if the node is fit to be sent work.", float(report.healthy))
        checks = labelled_gauge("health_check", "1 for each check that passes.", "check")
        for name, state in report.checks.items():
            checks.add_metric([name], float(state in ("ok", "absent")))
        yield checks

    def _engine(self) -> Iterator[Metric]:
        executor, meter = self._of.executor, self._of.executor.meter
        yield counter("requests_admitted", "Generations taken into the queue.", meter.requests)
        ended = labelled_counter("generations", "Generations that have ended.", "outcome")
        for outcome in OUTCOMES:
            ended.add_metric([outcome], meter.outcomes[outcome])
        yield ended
        yield counter("prompt_tokens", "Tokens of prompts.", meter.prompt_tokens)
        yield counter("generated_tokens", "Tokens generated.", meter.tokens)
        for name, text, buckets in (
            ("request_duration", "From a request to the end of its generation.", meter.request_s),
            ("queue_duration", "From a request to a place in the batch.", meter.queue_s),
            ("time_to_first_token", "From a request to its first token.", meter.first_token_s),
            ("time_per_output_token", "From each token to the next.", meter.next_token_s),
        ):
            yield histogram(f"meshnode_{name}_seconds", text, [((), buckets)])
        yield gauge("queue_length", "Generations and sessions that wait.", self._waiting)
        yield gauge("queue_limit", "The most that may wait.", executor.limits.max_queue)
        yield gauge("batch_size", "Generations and sessions with a place.", self._running)
        yield gauge("batch_limit", "Places.", executor.limits.max_batch)
        yield counter("engine_steps", "Calls into the compute thread.", executor.steps)
        yield counter(
            "engine_computing_seconds", "Time in which it computed.", executor.thread.computing_s
        )
        yield gauge(
            "kv_cache_used_bytes", "Reserved for keys and values.", executor.kv_bytes_in_use
        )
        yield gauge("prefix_cache_bytes", "Kept for later prompts.", executor.prefixes.nbytes)
        yield gauge(
            "prefix_cache_entries", "Generations of which they are.", len(executor.prefixes)
        )
        yield gauge("kv_cache_limit_bytes", "The most of it.", executor.kv_bytes_limit)

    def _pipeline(self) -> Iterator[Metric]:
        hops = self._of.hops
        yield counter("pipeline_generations", "Generations over several nodes.", hops.generations)
        yield counter("pipeline_failovers", "Paths that were left.", hops.failovers)
        guesses = hops.speculation
        yield counter("pipeline_guesses", "Tokens that were guessed ahead.", guesses.proposed)
        yield counter("pipeline_guesses_right", "Those that were right.", guesses.accepted)
        text, taken = "Answers straight from the last holder.", hops.short_cuts.taken
        yield counter("pipeline_short_cuts", text, taken)
        checks = hops.checks
        yield counter("pipeline_checks_agreed", "Results computed twice alike.", checks.agreed)
        text = "Results that a second computation contradicts."
        yield counter("pipeline_checks_contradicted", text, checks.contradicted)
        text = "Results that nobody could compute a second time."
        yield counter("pipeline_checks_impossible", text, checks.impossible)
        rows = [((phase,), buckets) for phase, buckets in hops.seconds.items()]
        text = "Time of a step at a remote hop."
        yield histogram("meshnode_hop_duration_seconds", text, rows, ("phase",))

    def _traffic(self) -> Iterator[Metric]:
        traffic = self._of.traffic
        text = "Requests to the HTTP port that have ended; status 0 if the client left before."
        requests = labelled_counter("http_requests", text, "method", "route", "status")
        for (method, route, status), count in self._of.http.requests.items():
            requests.add_metric([method, route, str(status)], count)
        yield requests
        yield counter("rpc_calls", "gRPC calls begun, served and made.", traffic.rpc_calls)
        served = labelled_counter("rpc_served", "gRPC calls that were served.", "operation", "code")
        for (operation, code), count in traffic.served.items():
            served.add_metric([operation, code], count)
        yield served
        text = "Bytes of gRPC messages, before compression of any kind."
        sizes = labelled_counter("rpc_message_bytes", text, "kind", "operation", "direction")
        for (operation, sent), count in traffic.message_bytes.items():
            kind = KINDS.get(operation, "other")
            sizes.add_metric([kind, operation, "sent" if sent else "received"], count)
        yield sizes
        sockets = labelled_counter("network_bytes", "Bytes on gRPC sockets.", "direction")
        sockets.add_metric(["sent"], traffic.bytes_sent)
        sockets.add_metric(["received"], traffic.bytes_received)
        yield sockets
        yield gauge("rpc_connections", "gRPC connections open.", traffic.active_connections)

    def _network(self) -> Iterator[Metric]:
        of, card = self._of, self._of.executor.card
        peers = of.book.peers()
        yield gauge("peers", "Nodes that answer.", len(peers))
        yield gauge("dht_contacts", "Nodes in the routing table.", of.contacts())
        yield gauge("layers_held", "Layers of the model held here.", len(card.layers))
        own = of.book.own.model_hash
        held = {*card.layers, *(n for p in peers if p.model_hash == own for n in p.layers)}
        missing = card.num_layers - len(held & set(range(card.num_layers)))
        yield gauge("layers_missing", "Layers that no reachable node holds.", missing)
        training = of.training()
        yield gauge("training_enabled", "1 while this node trains.", float(of.trains()))
        yield gauge("training_round", "Rounds whose weights were kept.", training.epoch)
        yield counter("training_steps", "Inner steps since the start.", training.steps_total)
        yield gauge("training_loss", "Loss of the latest inner step.", training.loss)
        text = "Loss of the kept weights on held-out text."
        yield gauge("training_held_out_loss", text, training.held_out_loss)
        versions = of.executor.versions
        text = "The round of training whose weights are served; 0 as the node was started."
        yield gauge("served_version", text, versions.current.weights.version)
        text = "1 for the model, with its weights, that new generations get."
        model = labelled_gauge("served_model_info", text, "model_hash")
        model.add_metric([versions.current.model_hash], 1.0)
        yield model
        text = "Versions of the weights in memory, those that drain included."
        yield gauge("versions_in_memory", text, len(versions.all))
        yield counter("version_switches", "Switches to other weights.", versions.switches)
        submitted, accepted = training.gradients_submitted, training.gradients_accepted
        yield counter("training_gradients_submitted", "Contributions sent.", submitted)
        yield counter("training_gradients_accepted", "Contributions accepted.", accepted)

    def _chain(self) -> Iterator[Metric]:
        chain = self._of.chain()
        yield gauge("chain_up", "1 if this node has a chain.", float(chain is not None))
        if chain is None:
            return
        yield gauge("chain_height", "Height of the latest block.", chain.height)
        seconds = chain.time_ns / SECOND_NS
        yield gauge("chain_block_timestamp_seconds", "Time of the latest block.", seconds)
        yield counter("wallet_charges", "Generations that were charged.", chain.charged.charges)
        yield counter("wallet_charged_atoms", "Atoms that were charged.", chain.charged.atoms)

    def _vllm(self) -> Iterator[Metric]:
        """The same figures under vLLM's names."""
        executor, meter = self._of.executor, self._of.executor.meter
        labels, model = ["model_name"], [self._of.model]
        usage = executor.kv_bytes_in_use / max(1, executor.kv_bytes_limit)
        for name, text, value in (
            ("num_requests_running", "Requests that compute.", self._running),
            ("num_requests_waiting", "Requests that wait for a place.", self._waiting),
            ("kv_cache_usage_perc", "Use of the KV cache, 0 to 1.", usage),
        ):
            family = GaugeMetricFamily(f"vllm:{name}", text, labels=labels)
            family.add_metric(model, value)
            yield family
        for name, text, count in (
            ("prompt_tokens", "Tokens of prompts.", meter.prompt_tokens),
            ("generation_tokens", "Tokens generated.", meter.tokens),
            ("prefix_cache_queries", "Prompt tokens looked up.", executor.prefixes.queried),
            ("prefix_cache_hits", "Prompt tokens that were found.", executor.prefixes.hit),
        ):
            total = CounterMetricFamily(f"vllm:{name}", text, labels=labels)
            total.add_metric(model, count)
            yield total
        success = CounterMetricFamily(
            "vllm:request_success", "Requests that finished.", labels=[*labels, "finished_reason"]
        )
        for reason in ("stop", "length"):
            success.add_metric([*model, reason], meter.outcomes[reason])
        yield success
        for name, text, buckets in (
            ("time_to_first_token", "From a request to its first token.", meter.first_token_s),
            ("time_per_output_token", "From each token to the next.", meter.next_token_s),
            ("inter_token_latency", "From each token to the next.", meter.next_token_s),
            ("e2e_request_latency", "From a request to its end.", meter.request_s),
            ("request_queue_time", "From a request to a place.", meter.queue_s),
        ):
            yield histogram(f"vllm:{name}_seconds", text, [(model, buckets)], labels)

    @property
    def _waiting(self) -> int:
        return self._of.executor.queued + self._of.driven()

    @property
    def _running(self) -> int:
        return self._of.executor.active - self._of.executor.queued


OUTCOMES = ("stop", "length", "cancelled", "failed")


def gauge(name: str, text: str, value: float) -> Metric:
    """One gauge without labels."""
    return GaugeMetricFamily(f"meshnode_{name}", text, value=value)


def labelled_gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    """A gauge whose values are added by the caller."""
    return GaugeMetricFamily(f"meshnode_{name}", text, labels=labels)


def counter(name: str, text: str, value: float) -> Metric:
    """One counter without labels; its name gets ``_total``."""
    return CounterMetricFamily(f"meshnode_{name}", text, value=value)


def labelled_counter(name: str, text: str, *labels: str) -> CounterMetricFamily:
    """A counter whose values are added by the caller."""
    return CounterMetricFamily(f"meshnode_{name}", text, labels=labels)


def histogram(
    name: str,
    text: str,
    rows: Iterable[tuple[Iterable[str], Buckets]],
    labels: Iterable[str] = (),
) -> Metric:
    """A histogram with a row for each set of label values."""
    family = HistogramMetricFamily(name, text, labels=list(labels))
    for values, buckets in rows:
        bounds = [*(str(bound) for bound in buckets.bounds), "+Inf"]
        counts = accumulate(buckets.counts)
        cumulative = list(zip(bounds, (float(count) for count in counts), strict=True))
        family.add_metric(list(values), buckets=cumulative, sum_value=buckets.total)
    return family
