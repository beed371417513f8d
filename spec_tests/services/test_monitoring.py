"""The metrics for Prometheus: names, labels and figures (decision 0170)."""

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing
from prometheus_client.parser import text_string_to_metric_families

from meshnode.domain.metering import (
    Buckets,
    ChargeMeter,
    HttpMeter,
    TrafficMeter,
    TrainingFigures,
)
from meshnode.model.loading import LoadedModel
from meshnode.services.executor import Executor
from meshnode.services.health import Health
from meshnode.services.monitoring import KINDS, ChainFigures, Monitor, Monitored
from meshnode.services.pipeline.records import HopRecorder, HopTime
from meshnode.supervise import Drain, ServiceBoard
from meshnode.wire import node_pb2
from spec_tests.services.executor.generations import GREEDY, complete, with_executor

DEPLOY = Path(__file__).parents[2] / "deploy"
NAME = re.compile(r"\b(?:meshnode|vllm)[_:][a-z_0-9]+")


def monitored(executor: Any, **changes: Any) -> Monitored:
    """Figures of a node with nothing but an executor."""
    book: Any = SimpleNamespace(peers=list, own=SimpleNamespace(model_hash="a"))
    owners: dict[str, Any] = {
        "version": "1.2.3",
        "model": "small",
        "executor": executor,
        "driven": lambda: 0,
        "hops": HopRecorder(),
        "traffic": TrafficMeter(),
        "http": HttpMeter(),
        "health": Health(
            drain=Drain(),
            services=ServiceBoard(),
            device=lambda: "absent",
            peer_count=lambda: 0,
            tracker_url="",
            now=lambda: 0.0,
        ),
        "book": book,
        "contacts": lambda: 3,
        "training": lambda: TrainingFigures(epoch=4, held_out_loss=1.5),
        "trains": lambda: True,
        "chain": lambda: None,
    }
    return Monitored(**owners | changes)


def samples(monitor: Monitor) -> dict[str, float]:
    """The values of a scrape, by name and labels."""
    body, content_type = monitor.encode()
    assert content_type.startswith("text/plain; version=0.0.4")
    return {
        sample.name + "".join(f" {key}={value}" for key, value in sorted(sample.labels.items())): (
            sample.value
        )
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


async def test_generations_are_counted_under_both_names(model: LoadedModel) -> None:
    async def use(executor: Executor) -> None:
        monitor = Monitor(monitored(executor))
        for _ in range(3):
            _, finished = await complete(executor, GREEDY)
        left = await executor.open(GREEDY)
        async with left:
            pass
        found = samples(monitor)
        prompt = finished.usage.prompt_tokens
        assert found["meshnode_generations_total outcome=length"] == 3
        assert found["meshnode_generations_total outcome=cancelled"] == 1
        assert found["meshnode_generations_total outcome=failed"] == 0
        assert found["meshnode_requests_admitted_total"] == 4
        assert found["meshnode_prompt_tokens_total"] == 3 * prompt
        assert found["vllm:prompt_tokens_total model_name=small"] == 3 * prompt
        assert found["meshnode_generated_tokens_total"] == 24
        assert found["vllm:generation_tokens_total model_name=small"] == 24
        assert found["vllm:request_success_total finished_reason=length model_name=small"] == 3
        for name, count in (
            ("time_to_first_token_seconds", 3),
            ("time_per_output_token_seconds", 21),
        ):
            assert found[f"meshnode_{name}_count"] == count
            assert found[f"vllm:{name}_count model_name=small"] == count
            assert found[f"meshnode_{name}_bucket le=+Inf"] == count
        assert found["meshnode_request_duration_seconds_count"] == 4
        assert found["meshnode_kv_cache_used_bytes"] == 0
        assert found["meshnode_layers_missing"] == 0
        assert found["meshnode_training_held_out_loss"] == 1.5
        assert found["meshnode_chain_up"] == 0

    await with_executor(model, use)


async def test_a_gateway_sees_queue_batch_and_cache_at_every_moment(model: LoadedModel) -> None:
    """What the Gateway API inference extension requires of a model server."""

    async def use(executor: Executor) -> None:
        monitor = Monitor(monitored(executor, driven=lambda: 2))
        for _ in range(6):
            # Long enough that none ends before the look.
            await executor.open(replace(GREEDY, max_tokens=100))
        await trio.testing.wait_all_tasks_blocked()
        found = samples(monitor)
        running = found["vllm:num_requests_running model_name=small"]
        waiting = found["vllm:num_requests_waiting model_name=small"]
        # Six of our own, two of the pipeline's.
        assert running == found["meshnode_batch_size"]
        assert running + waiting == 8
        assert 0 < found["vllm:kv_cache_usage_perc model_name=small"] <= 1
        while executor.active:
            await trio.lowlevel.checkpoint()

    await with_executor(model, use)


async def test_traffic_hops_and_money_have_their_labels(model: LoadedModel) -> None:
    traffic, http, hops, charged = TrafficMeter(), HttpMeter(), HopRecorder(), ChargeMeter()
    traffic.message_bytes["SwarmForward", True] += 100
    traffic.message_bytes["Check", False] += 7
    traffic.served["DHTPing", "OK"] += 2
    http.requests["GET", "/api/v1/status", 200] += 5
    hops.add([HopTime("ab" * 20, 1, 2, 1.0, 2.0, 30.0)])
    charged.add(1200)

    async def use(executor: Executor) -> None:
        chain = ChainFigures(7, 1_500_000_000, charged)
        found = samples(
            Monitor(monitored(executor, traffic=traffic, http=http, hops=hops, chain=lambda: chain))
        )
        sent = "meshnode_rpc_message_bytes_total direction=sent kind=activations"
        assert found[f"{sent} operation=SwarmForward"] == 100
        received = "meshnode_rpc_message_bytes_total direction=received kind=other"
        assert found[f"{received} operation=Check"] == 7
        assert found["meshnode_rpc_served_total code=OK operation=DHTPing"] == 2
        requests = "meshnode_http_requests_total method=GET route=/api/v1/status status=200"
        assert found[requests] == 5
        assert found["meshnode_hop_duration_seconds_sum phase=network"] == pytest.approx(0.03)
        assert found["meshnode_chain_height"] == 7
        assert found["meshnode_chain_block_timestamp_seconds"] == 1.5
        assert found["meshnode_wallet_charges_total"] == 1
        assert found["meshnode_wallet_charged_atoms_total"] == 1200

    await with_executor(model, use)


def test_every_operation_has_a_kind() -> None:
    service = node_pb2.DESCRIPTOR.services_by_name["NodeService"]
    assert set(KINDS) == {method.name for method in service.methods} | {"Calls"}


async def test_dashboard_and_alerts_name_metrics_that_exist(model: LoadedModel) -> None:
    async def use(executor: Executor) -> None:
        chain = ChainFigures(7, 0, ChargeMeter())
        monitor = Monitor(monitored(executor, chain=lambda: chain))
        families = list(text_string_to_metric_families(monitor.encode()[0].decode()))
        known = {sample.name for family in families for sample in family.samples}
        # Families whose labels come with the first event.
        known |= {family.name + "_total" for family in families if family.type == "counter"}
        dashboard = json.loads((DEPLOY / "grafana" / "meshnode.json").read_text())
        expressions = [
            target["expr"] for panel in dashboard["panels"] for target in panel["targets"]
        ]
        expressions.append((DEPLOY / "prometheus" / "alerts.yml").read_text())
        named = {name for text in expressions for name in NAME.findall(text)}
        assert named - known == set()
        assert len(named) > 20

    await with_executor(model, use)


def test_a_bucket_takes_values_up_to_its_bound() -> None:
    buckets = Buckets((1.0, 2.0))
    for value in (0.0, 1.0, 1.5, 2.0, 9.0):
        buckets.add(value)
    assert (buckets.counts, buckets.total) == ([2, 2, 1], 13.5)
