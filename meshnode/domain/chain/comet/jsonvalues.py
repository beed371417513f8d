"""Single values of CometBFT's JSON: written, and read with MalformedBlock for another form."""

from __future__ import annotations

import base64
import re

from meshnode.domain.chain.canonical import Json
from meshnode.domain.chain.comet.commits import BlockId, PartSet
from meshnode.domain.chain.errors import MalformedBlock

_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)
_HEX = re.compile(r"(?:[0-9A-F]{2})*", re.ASCII)

JsonObject = dict[str, Json]


def hex_of(data: bytes) -> str:
    """Uppercase hex."""
    return data.hex().upper()


def base64_of(data: bytes) -> str:
    """Base64."""
    return base64.b64encode(data).decode()


def read_object(value: Json) -> JsonObject:
    """An object."""
    if not isinstance(value, dict):
        raise MalformedBlock
    return value


def read_list(value: Json) -> list[Json]:
    """A list."""
    # Go writes a list to which nothing was ever added as null.
    if value is None:
        return []
    if not isinstance(value, list):
        raise MalformedBlock
    return value


def read_text(value: Json) -> str:
    """A text."""
    if not isinstance(value, str):
        raise MalformedBlock
    return value


def read_small(value: Json) -> int:
    """A number below 2**31."""
    if type(value) is not int or not 0 <= value < 2**31:
        raise MalformedBlock
    return value


def read_number(value: Json) -> int:
    """A decimal string below 2**63."""
    text = read_text(value)
    if not _NUMBER.fullmatch(text) or int(text) >= 2**63:
        raise MalformedBlock
    return int(text)


def read_hex(value: Json) -> bytes:
    """A hash of 32 bytes, or nothing."""
    text = read_text(value)
    if len(text) not in (0, 64) or not _HEX.fullmatch(text):
        raise MalformedBlock
    return bytes.fromhex(text)


def read_address(value: Json) -> str:
    """An address of 20 bytes in hex, or nothing."""
    text = read_text(value)
    if len(text) not in (0, 40) or not _HEX.fullmatch(text):
        raise MalformedBlock
    return text


def read_base64(value: Json) -> bytes:
    """Bytes."""
    try:
        return base64.b64decode(read_text(value), validate=True)
    except ValueError:
        # Text outside ASCII raises a plain ValueError, other bad text a subclass of it.
        raise MalformedBlock from None


def write_block_id(block_id: BlockId) -> JsonObject:
    """A block id as JSON."""
    parts: JsonObject = {"total": block_id.parts.total, "hash": hex_of(block_id.parts.hash)}
    return {"hash": hex_of(block_id.hash), "parts": parts}


def read_block_id(value: Json) -> BlockId:
    """A block id."""
    fields = read_object(value)
    parts = read_object(fields.get("parts"))
    total = read_small(parts.get("total"))
    return BlockId(read_hex(fields.get("hash")), PartSet(total, read_hex(parts.get("hash"))))
