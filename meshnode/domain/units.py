"""Factors for other units of size and time than bytes and seconds."""

from __future__ import annotations

MEBIBYTE = 1 << 20
GIBIBYTE = 1 << 30

SECOND_NS = 1_000_000_000
DAY_S = 86_400
DAY_NS = DAY_S * SECOND_NS
