"""Calls to other nodes: only the gradient that goes back to a sender_url."""

import threading
import time
from urllib.parse import urlsplit

import grpc

import node_pb2 as pb
import wire_more
from core import FLAGS, fault

OPTIONS = [
    ("grpc.max_send_message_length", 100 * 1024 * 1024),
    ("grpc.max_receive_message_length", 100 * 1024 * 1024),
    ("grpc.keepalive_time_ms", 30000),
    ("grpc.keepalive_timeout_ms", 10000),
    ("grpc.keepalive_permit_without_calls", 1),
]


def later(url, operation, message):
    if fault("eff-backward-not-passed-on"):
        return
    threading.Thread(target=call, args=(url, operation, message), daemon=True).start()


def call(url, operation, message):
    try:
        parts = urlsplit(url if "//" in url else "//" + url)
        target = "%s:%d" % (
            parts.hostname,
            (parts.port or 8000) + (0 if fault("rel-peer-port-http") else 1000),
        )
    except ValueError:
        return
    tries = 6 if fault("lim-six-attempts") else 3
    with grpc.insecure_channel(target, options=OPTIONS) as channel:
        method = channel.unary_unary(
            "/node.NodeService/" + operation,
            request_serializer=lambda item: wire_more.sent(FLAGS["fault"], item),
            response_deserializer=pb.PipelineBackwardResponse.FromString,
        )
        patience = 5.0
        if fault("lim2-deadline-minute"):
            patience = 60.0
        if fault("lim2-deadline-half-second"):
            patience = 0.5
        for attempt in range(tries):
            try:
                method(message, timeout=None if fault("lim-no-deadline") else patience)
                return
            except grpc.RpcError as error:
                if not fault("ref2-not-found-again") and error.code() in (
                    grpc.StatusCode.INVALID_ARGUMENT,
                    grpc.StatusCode.NOT_FOUND,
                    grpc.StatusCode.UNIMPLEMENTED,
                ):
                    return
                if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
                    patience *= 2
                pause = min(2.0, 0.1 * 2**attempt)
                if fault("lim2-wait-in-seconds"):
                    pause = 4.0 * 2**attempt
                time.sleep(0 if fault("lim-retries-at-once") else pause)
