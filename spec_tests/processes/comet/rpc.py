"""Calls of an engine over its socket, without trio and without this project's client."""

from __future__ import annotations

import http.client
import json
import os
import socket
from pathlib import Path
from typing import Any


class Silent(Exception):
    """The engine does not answer."""


class Refused(Exception):
    """The engine answered with an error."""


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("engine", timeout=10)
        self._path = path

    def connect(self) -> None:
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(10)
        try:
            self.sock.connect(f"/proc/self/fd/{folder}/{self._path.name}")
        finally:
            os.close(folder)


def call(path: Path, method: str, params: dict[str, Any]) -> Any:
    """The result of a call. Raises Silent or Refused."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    connection = _Connection(path)
    try:
        connection.request("POST", "/", body, {"Content-Type": "application/json"})
        answer = json.loads(connection.getresponse().read())
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Silent(str(error)) from None
    finally:
        connection.close()
    if "error" in answer:
        raise Refused(answer["error"].get("data") or answer["error"])
    return answer["result"]
