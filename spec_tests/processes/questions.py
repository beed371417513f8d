"""Requests to nodes in a lab of namespaces, sent by processes on a host of it (see ``calls``)."""

from __future__ import annotations

import http.client
import json
import time
from typing import Any

import grpc

from meshnode.wire import node_pb2 as pb

PATH = "/api/v1/inference"
WITHIN_S = 600


def ask(host: str, port: int, token: str, path: str) -> None:
    """Send a GET request and print the body of the answer."""
    connection = http.client.HTTPConnection(host, port, timeout=WITHIN_S)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    connection.request("GET", path, headers=headers)
    print(connection.getresponse().read().decode())
    connection.close()


def stream(host: str, port: int, token: str, body: dict[str, Any]) -> None:
    """Print each line of a stream after the monotonic time in seconds at which it came."""
    connection = http.client.HTTPConnection(host, port, timeout=WITHIN_S)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    connection.request("POST", PATH, json.dumps(body), headers)
    for line in connection.getresponse():
        if line.strip():
            print(time.monotonic(), line.decode().strip(), flush=True)
    connection.close()


def count_sessions(targets: list[str]) -> None:
    """Print how many active sessions each of these gRPC servers has."""
    for target in targets:
        with grpc.insecure_channel(target) as channel:
            call = channel.unary_unary(
                "/node.NodeService/GetShardInfo",
                pb.GetShardInfoRequest.SerializeToString,
                pb.GetShardInfoResponse.FromString,
            )
            print(call(pb.GetShardInfoRequest(), timeout=WITHIN_S).capacity.active_sessions)
