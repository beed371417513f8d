"""Types of fields that several bodies of the HTTP port have (interface 2.1 and 2.2)."""

from __future__ import annotations

from typing import Annotated, Literal

from meshnode.http.schema import Limits

Count = Annotated[int, Limits(minimum=0)]
Amount = Annotated[float, Limits(minimum=0)]
Share = Annotated[float, Limits(minimum=0, maximum=1)]
Percent = Annotated[float, Limits(minimum=0, maximum=100)]
Port = Annotated[int, Limits(minimum=1, maximum=65535)]
Timestamp = Annotated[str, Limits(format="date-time", pattern="Z$")]
Date = Annotated[str, Limits(format="date")]
Role = Literal["driver", "worker", "validator"]
Trend = Literal["unknown", "improving", "stable", "worsening"]
Account = Annotated[
    str,
    Limits(pattern="^0[23][0-9a-f]{64}$", description="A compressed secp256k1 public key."),
]
Payee = Annotated[
    str,
    Limits(
        pattern="^(0[23][0-9a-f]{64}|[Mm][Ee][Ss][Hh]1[02-9A-Za-z]{59})$",
        description="A public key, or an address with a checksum (mesh1...).",
    ),
]
Digest = Annotated[str, Limits(pattern="^[0-9a-f]{64}$")]
"""SHA-256 in lowercase hex: application ids, roots of the state and of models."""
BlockHash = Annotated[str, Limits(pattern="^([0-9A-F]{64})?$")]
"""Uppercase hex, as CometBFT writes it; empty before the first block."""
NodeId = Annotated[str, Limits(pattern="^[0-9a-f]{40}$")]
Atoms = Annotated[str, Limits(pattern="^(0|[1-9][0-9]*)$", description="Atoms, in decimal.")]
HexFloat = Annotated[str, Limits(description="A double, exactly, in hexadecimal notation.")]
