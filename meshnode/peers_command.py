"""``meshnode peers``: the nodes that a node knows, as a table."""

from __future__ import annotations

import argparse
import json

from meshnode.client.commands import failed
from meshnode.client.errors import ClientError
from meshnode.client.node_view import ask_node, peers_table
from meshnode.config import Config
from meshnode.watch_command import add_node_arguments, node_url, read_token


def add_peers_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_node_arguments(parser, "ask")
    parser.add_argument("--json", action="store_true", help="print the node's answer as JSON")


def run_peers_command(options: argparse.Namespace, config: Config) -> int:
    """Print the peers; the exit statuses are those of :mod:`meshnode.client.errors`."""
    try:
        peers = ask_node(node_url(options, config), "/peers", read_token(options, config))
    except ClientError as error:
        return failed(options, str(error), error.status)
    print(json.dumps(peers) if options.json else peers_table(peers), flush=True)
    return 0
