"""``meshnode train status``: the training of a node and of those that it knows, as a table.

In a terminal there is a curve of the held-out losses too.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys

from meshnode.client.commands import failed
from meshnode.client.errors import ClientError
from meshnode.client.node_view import ask_node
from meshnode.client.training_view import curve, finite, training_table
from meshnode.config import Config
from meshnode.watch_command import add_node_arguments, node_url, read_token

PATH = "/api/training/status"


def add_status_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_node_arguments(parser, "ask for its training")
    parser.add_argument("--json", action="store_true", help="print the node's answer as JSON")


def run_training_status(options: argparse.Namespace, config: Config) -> int:
    """Print the state; the exit statuses are those of :mod:`meshnode.client.errors`."""
    try:
        token = read_token(options, config)
        state = ask_node(node_url(options, config), PATH, token, api="")
    except ClientError as error:
        return failed(options, str(error), error.status)
    if options.json:
        print(json.dumps(state), flush=True)
        return 0
    lines = [training_table(state)]
    if sys.stdout.isatty():
        drawn = curve(finite(state.get("losses")), shutil.get_terminal_size().columns)
        lines += ["", *drawn] if drawn else []
    print("\n".join(lines), flush=True)
    return 0
