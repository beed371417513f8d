"""Sends an exchange of an earlier run again, as recorded in `exchanges.jsonl`.

Invariant: the request is exactly the recorded one, token included, or it is not sent at all: a
record is refused if its body was cut or is not text, its token is not set, or its file has changed.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from conformance.grpcwire import GrpcClient
from conformance.httprequest import ANONYMOUS, Credential
from conformance.httpwire import HttpClient, Unanswered
from conformance.journal import Exchange, Journal
from conformance.messagefile import BadFile, MessageFile, read_bytes
from conformance.secrecy import Redactor
from conformance.target import BadConfiguration


def find(log: Path, number: int) -> dict[str, Any]:
    """Find the record of one exchange."""
    try:
        for line in log.read_text(encoding="utf-8").splitlines():
            record: dict[str, Any] = json.loads(line)
            if record["number"] == number:
                return record
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadConfiguration(f"{log}: {error!r}") from None
    raise BadConfiguration(f"{log}: there is no exchange {number}")


def send(record: Mapping[str, Any], tokens: Mapping[str, str | None], timeout_s: float) -> Exchange:
    """Send the request of a record again; return the new exchange."""
    secrets = {name: token for name, token in tokens.items() if token}
    journal = Journal(Redactor(secrets))
    request = record["request"]
    if record["kind"] == "call":
        raise BadConfiguration("the tested node made this call, so that nobody else can repeat it")
    try:
        if record["kind"] == "grpc":
            return _send_grpc(request, journal, timeout_s)
        return _send_http(request, journal, tokens, timeout_s)
    except Unanswered as reason:
        return reason.exchange


def _send_grpc(request: Mapping[str, Any], journal: Journal, timeout_s: float) -> Exchange:
    body = _message(request)
    client = GrpcClient(request["target"], journal, timeout_s=timeout_s)
    try:
        metadata = tuple(request.get("metadata", {}).items())
        return client.call(request["operation"], body, metadata=metadata).exchange
    finally:
        client.close()


def _message(request: Mapping[str, Any]) -> MessageFile | bytes:
    if "file" in request:
        path: str = request["file"]
        try:
            file = MessageFile(path, read_bytes(path))
        except BadFile as error:
            raise BadConfiguration(str(error)) from None
        if file.sha256 != request["sha256"]:
            raise BadConfiguration(
                f"{path}: its SHA-256 differs from that of the message that was sent"
            )
        return file
    if request["cut"]:
        raise BadConfiguration("the message was too long to be recorded completely")
    return bytes.fromhex(request["hex"])


def _send_http(
    request: Mapping[str, Any],
    journal: Journal,
    tokens: Mapping[str, str | None],
    timeout_s: float,
) -> Exchange:
    body = request.get("body")
    if body is not None and (body["cut"] or len(body["text"].encode()) != body["bytes"]):
        raise BadConfiguration("the body was too long, or not text, and is not recorded completely")
    parts = urlsplit(request["url"])
    client = HttpClient(
        f"{parts.scheme}://{parts.netloc}", journal, timeout_s=timeout_s, max_wait_s=timeout_s
    )
    path = request["url"].removeprefix(client.base_url)
    answer = client.call(
        request["method"],
        path,
        credential=_credential(request["headers"].get("Authorization"), tokens),
        content=body["text"].encode() if body is not None else None,
    )
    return answer.exchange


def _credential(shown: str | None, tokens: Mapping[str, str | None]) -> Credential:
    if shown is None:
        return ANONYMOUS
    scheme, _, token = shown.partition(" ")
    name = token.removeprefix("$")
    if token == f"${name}" and name in tokens:
        if tokens[name] is None:
            raise BadConfiguration(f"the exchange was sent with {token}, which is not set")
        return Credential(f"{scheme} {tokens[name]}", shown)
    return Credential(shown, shown)


def summary(response: Mapping[str, Any] | None, fault: str | None) -> str:
    """Return one line about how an exchange ended."""
    if response is None:
        return fault or "no answer"
    if "code" in response:
        return f"{response['code']} {response['details']} ({response['bytes']} bytes)"
    text = " ".join(response["body"]["text"].split())
    return f"{response['status']} {text[:100]}"
