"""The banner for the operator of a ready node: its addresses, and a command to try.

The banner is the only place that shows the operator's token, and only when the token was made just
now or standard output is a terminal. Otherwise the banner names the token's file, since standard
output may be kept. No line that a person reads is longer than 80 columns with usual addresses.
"""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from meshnode import __version__


@dataclass(frozen=True, slots=True)
class BannerFacts:
    """What the banner shows."""

    node_id: str
    model: str
    layers: str
    drives: bool
    """Whether this node holds the first layer: then it answers prompts, alone or with peers."""
    http: tuple[str, int]
    """Address and port in use."""
    grpc: tuple[str, int]
    data_dir: Path
    token: str
    """Empty if the operator has configured a token."""
    token_file: Path
    token_is_new: bool
    secure: bool
    """Whether the ports speak TLS."""
    seconds: float
    """From the start of :func:`meshnode.node.run_node` until everything was ready."""


def print_banner(facts: BannerFacts, out: TextIO | None = None) -> None:
    """Write the banner to ``out``, standard output unless given, and flush it."""
    out = out or sys.stdout
    url = ("https://" if facts.secure else "http://") + format_address(*facts.http)
    token, credential = _token_lines(facts, shown=facts.token_is_new or out.isatty())
    lines = [
        f"meshnode {__version__}  ready in {facts.seconds:.1f} s",
        f"  node    {facts.node_id}",
        f"  model   {facts.model}, layers {facts.layers}",
        f"  page    {url}/ in a browser",
        f"  http    {url}/api/v1",
        f"          {url}/openapi.json describes it",
        f"  grpc    {format_address(*facts.grpc)}",
        f"  data    {facts.data_dir}",
        f"  token   {token}",
        "try it:",
    ]
    if facts.drives:
        lines += [
            f"  curl {url}/api/v1/inference \\",
            "    -H 'Content-Type: application/json' \\",
            f'    -H "Authorization: Bearer {credential}" \\',
            """    -d '{"prompt": "Once upon a time", "max_tokens": 60, "temperature": 0.7}'""",
        ]
    else:
        # A prompt can be answered only once a node with the first layer is known.
        lines.append(f'  curl {url}/api/v1/layers -H "Authorization: Bearer {credential}"')
    print("\n".join(lines), file=out, flush=True)


def format_address(host: str, port: int) -> str:
    """``host:port``, with brackets around an IPv6 address; a wildcard becomes loopback."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - not a bind
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _token_lines(facts: BannerFacts, *, shown: bool) -> tuple[str, str]:
    if not facts.token:
        return "the one that you set", "$MESHNODE_TOKEN"
    read_file = f"$(cat {shlex.quote(str(facts.token_file))})"
    return (facts.token if shown else f"in {facts.token_file}"), read_file
