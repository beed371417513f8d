"""The chain that each gateway was on at first contact (decision 0093).

Without a descriptor the client does not know which network the user means, so it remembers the
first answer, and every later one must agree. The pins are a readable JSON file in the client's
folder. To accept that a gateway has moved to another chain, the user removes its pin with
``meshnode network forget``.
"""

from __future__ import annotations

from pathlib import Path

from meshnode.client.answers import Fields, Identity
from meshnode.client.errors import GatewayMisbehaves, Misused
from meshnode.datadir import write_private
from meshnode.domain.chain.canonical import Json, JsonLimits, encode, parse
from meshnode.domain.chain.errors import MalformedJson

PINS_FILE = "networks.json"
MAX_PINS = 1000
"""The most gateways in the file. Beyond that, the user is asked to remove some."""
_LIMITS = JsonLimits(size=1_048_576)


class Pins:
    """The remembered chains of gateways, by URL."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / PINS_FILE

    def get(self, url: str) -> Identity | None:
        """The identity of ``url`` at first contact; None before that."""
        value = self._read().get(url)
        if value is None:
            return None
        try:
            return Fields(value, PINS_FILE).identity()
        except GatewayMisbehaves:
            raise self._damaged() from None

    def put(self, url: str, identity: Identity) -> None:
        """Remember the identity of ``url``."""
        pins = self._read()
        if len(pins) >= MAX_PINS:
            raise Misused(f"{self._path} has {MAX_PINS} entries; remove it, or some of them")
        pins[url] = {"chain_id": identity.chain_id, "genesis_sha256": identity.genesis_sha256}
        self._write(pins)

    def forget(self, url: str) -> bool:
        """Forget ``url``; False when it was not known."""
        pins = self._read()
        known = pins.pop(url, None) is not None
        if known:
            self._write(pins)
        return known

    def _read(self) -> dict[str, Json]:
        try:
            value = parse(self._path.read_bytes(), _LIMITS)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise Misused(f"cannot read {self._path}: {error.strerror}") from None
        except MalformedJson:
            raise self._damaged() from None
        if not isinstance(value, dict):
            raise self._damaged()
        return value

    def _write(self, pins: dict[str, Json]) -> None:
        try:
            write_private(self._path, encode(pins) + b"\n")
        except OSError as error:
            raise Misused(f"cannot write {self._path}: {error.strerror}") from None

    def _damaged(self) -> Misused:
        return Misused(f"{self._path} is damaged; remove it, and gateways are remembered anew")
