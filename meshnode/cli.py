"""The command line: the node itself, and the tools around it.

Exit status: 0 after a drain; 1 when a service failed for good; 2 for what the operator can mend (a
bad configuration, a taken port, an unreadable model), told in one line; 128 + signal when ended at
once.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn, TypeAlias

from meshnode import __version__
from meshnode.client import commands as client
from meshnode.config import Config
from meshnode.domain.errors import MeshnodeError, StartupError
from meshnode.sources import load_config
from meshnode.worker_command import add_worker_arguments, run_worker_command

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

_FLAGS = {
    "host": ("ADDRESS", "address to listen on (default 127.0.0.1)"),
    "port": ("PORT", "HTTP port (default 8000); gRPC is always this plus 1000"),
    "data-dir": ("DIR", "folder for key, tokens and settings"),
    "token": ("TOKEN", "operator token to accept instead of a generated one"),
    "model": ("DIR", "Hugging Face directory of a Llama-family model, or 'network'"),
    "layers": ("LAYERS", "layers to hold: 'all', 'auto', N or FIRST-LAST (default all)"),
    "tracker": ("URL", "http://HOST:PORT of a node to join through, or several with commas"),
    "log-format": ("FORMAT", "'text' or 'json' (default text)"),
}


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit."""
    options = _parser().parse_args(arguments)
    try:
        toml_file = getattr(options, "config", None) or os.environ.get("MESHNODE_CONFIG")
        config = load_config(_given(options), os.environ, toml_file)
        if options.command == "token":
            from meshnode.token_command import run_token_command

            run_token_command(options, Path(config.data_dir), _passphrase())
            sys.exit(0)
        if options.command == "train":
            from meshnode.train_command import run_train_command

            sys.exit(run_train_command(options, config))
        if options.command == "worker":
            run_worker_command(options, config.model, Path(config.data_dir))
            sys.exit(0)
        if options.command is not None:
            sys.exit(client.run(options, config))
        sys.exit(_run_node(config))
    except MeshnodeError as error:
        sys.exit(client.failed(options, str(error)))
    except KeyboardInterrupt:
        sys.exit(130)


def _run_node(config: Config) -> int:
    # Imported here because it brings torch: the other commands answer at once without it.
    import trio

    from meshnode.logs import set_up_logging
    from meshnode.node import run_node
    from meshnode.supervise import ServiceFailed

    set_up_logging(config.log_format)
    status = 0
    try:
        trio.run(run_node, config)
    except* StartupError as group:
        for error in _leaves(group):
            print(f"meshnode: {error}", file=sys.stderr)
        status = 2
    except* ServiceFailed as group:
        for error in _leaves(group):
            print(f"meshnode: {error}", file=sys.stderr)
        status = 1
    return status


def _passphrase() -> str:
    return os.environ.get("MESHNODE_KEY_PASSPHRASE", "")


def _days(text: str) -> float:
    days = float(text)
    if not 0 < days <= 36_500:
        raise argparse.ArgumentTypeError("must be above 0 and at most 36500")
    return days


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]


def _given(options: argparse.Namespace) -> dict[str, str]:
    keys = {flag: flag.replace("-", "_") for flag in _FLAGS}
    given = {key: getattr(options, key, None) for key in keys.values()}
    given["tracker_url"] = given.pop("tracker")
    return {key: text for key, text in given.items() if text is not None}


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--config", metavar="FILE", help="TOML file with settings", default=argparse.SUPPRESS
    )
    for flag, (metavar, text) in _FLAGS.items():
        # No default: a flag that is absent after the command must not hide the one before it.
        common.add_argument(f"--{flag}", metavar=metavar, help=text, default=argparse.SUPPRESS)
    parser = argparse.ArgumentParser(
        prog="meshnode",
        parents=[common],
        description="A node of a distributed model network. Without a command it runs the node.",
        epilog="Every flag is also a MESHNODE_* variable and a key of the TOML file.",
    )
    parser.add_argument("--version", action="version", version=f"meshnode {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    token = commands.add_parser("token", help="issue, list and revoke bearer tokens")
    actions = token.add_subparsers(dest="action", metavar="ACTION", required=True)
    issue = actions.add_parser("issue", parents=[common], help="make a token and print it once")
    issue.add_argument("--name", required=True, help="whom the token is for")
    issue.add_argument(
        "--days", type=_days, default=90.0, help="days until it expires (default 90)"
    )
    actions.add_parser("list", parents=[common], help="show the tokens, without their secrets")
    revoke = actions.add_parser("revoke", parents=[common], help="make a token invalid at once")
    revoke.add_argument("which", metavar="ID", help="the id, or the name, that 'list' shows")
    issue.add_argument("--fund", metavar="UNITS", help="pay so much into its account")
    sweep = actions.add_parser(
        "sweep", parents=[common], help="bring the money of a revoked token to the node's account"
    )
    sweep.add_argument("which", metavar="ID", help="the id, or the name, that 'list' shows")
    _add_train(commands, common)
    worker = commands.add_parser("worker", parents=[common], help="train for a sponsor, for pay")
    add_worker_arguments(worker)
    client.add_commands(commands, common)
    return parser


def _add_train(commands: Commands, common: argparse.ArgumentParser) -> None:
    train = commands.add_parser("train", parents=[common], help="train a model on a folder of text")
    train.add_argument("--text", type=Path, required=True, metavar="DIR", help="folder of text")
    train.add_argument("--steps", type=int, required=True, help="steps of the whole run")
    train.add_argument("--out", type=Path, required=True, metavar="DIR", help="the trained model")
    train.add_argument("--from", dest="start", type=Path, metavar="DIR", help="model to start from")
    train.add_argument("--fresh", action="store_true", help="start from random weights")
    train.add_argument("--batch-size", type=int, default=8, help="sequences in a step (default 8)")
    train.add_argument("--learning-rate", type=float, default=1e-4, help="default 0.0001")
    train.add_argument("--warmup", type=int, default=0, help="steps of rising learning rate")
