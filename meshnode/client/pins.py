"""Which chain a gateway was on when it was first asked (decision 0093).

Without a descriptor nothing says which network the user means, so the first answer is remembered
and every later one must agree. Readable JSON in the client's folder; to accept that a gateway has
moved to another chain, its line is removed with ``meshnode network forget``.
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
"""Gateways; beyond that the user is asked to tidy up, instead of the file growing for ever."""
_LIMITS = JsonLimits(size=1_048_576)


class Pins:
    """The remembered chains of gateways, by URL."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / PINS_FILE

    def get(self, url: str) -> Identity | None:
        """What ``url`` was when it was first asked; None before that."""
        value = self._read().get(url)
        if value is None:
            return None
        try:
            return Fields(value, PINS_FILE).identity()
        except GatewayMisbehaves:
            raise self._damaged() from None

    def put(self, url: str, identity: Identity) -> None:
        """Remember."""
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
        return Misused(f"{self._path} is damaged; remove it to have gateways remembered anew")
