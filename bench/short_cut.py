"""Answers that come straight from the last holder, beside answers along the calls (decision 0219).

``python -m bench.short_cut`` needs the right to make network namespaces. Hosts share a model, with
50 ms a way between any two of them. Two drivers on the first host use the same holders and guess
nothing: to one the last holder answers straight, the other has ``pipeline.short_cut`` off. Both
answer the same requests in turn, and the texts must be equal. A token should take one way for each
hop and one back, instead of two for each hop.
"""

from __future__ import annotations

from bench.speculation import DELAY_MS, MBIT, PLAIN, network, rates
from bench.table import BenchRow

TOKENS = 24
ALONG = {**PLAIN, "MESHNODE_PIPELINE_SHORT_CUT": "false"}


def run() -> list[BenchRow]:
    """Measure with three nodes and with four."""
    rows = []
    for layers in (("0-2", "3-5", "6-7"), ("0-1", "2-3", "4-5", "6-7")):
        hops = len(layers) - 1
        with network("", layers, DELAY_MS, MBIT, (PLAIN, ALONG)) as (host, urls):
            straight, along = rates(host, urls, TOKENS)
        name = f"{len(layers)} nodes, {DELAY_MS:.0f} ms a way"
        best = 2 * hops / (hops + 1)
        rows.append(BenchRow(name, straight, along, straight / along, 0.9 * best, "token/s"))
    return rows


def main() -> None:
    """Measure and print."""
    from bench.__main__ import print_table

    print_table({"short_cut": run()})


if __name__ == "__main__":
    main()
