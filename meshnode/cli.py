"""The command line: the node itself, and the tools around it.

Exit status of the node: 0 after a drain; 1 when a service failed for good; 2 for an error that the
operator can fix (a bad configuration, a port in use, an unreadable model), reported in one line;
128 + signal when the process was ended at once. Commands for users of a chain have those of
:mod:`meshnode.client.errors`.

Each command shows and accepts only the options that affect it. It still recognises the node's other
options, so that ``meshnode account --port 8001`` is refused with advice instead of silently using
another port.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn, TypeAlias

from meshnode import __version__
from meshnode.chain_command import add_chain_arguments
from meshnode.client import commands as client
from meshnode.config import Config
from meshnode.doctor_command import add_doctor_arguments, run_doctor_command
from meshnode.domain.errors import MeshnodeError, StartupError
from meshnode.memory import map_large_blocks
from meshnode.peers_command import add_peers_arguments, run_peers_command
from meshnode.ports import check_ports
from meshnode.sources import load_config
from meshnode.training_status_command import add_status_arguments, run_training_status
from meshnode.watch_command import add_watch_arguments, run_watch_command
from meshnode.worker_command import add_worker_arguments, run_worker_command

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

FLAGS = {
    "host": ("ADDRESS", "address to listen on (default 127.0.0.1)"),
    "port": ("PORT", "HTTP port (default 8000); the gRPC port is always this plus 1000"),
    "data-dir": ("DIR", "data folder (default ~/.local/share/meshnode)"),
    "token": ("TOKEN", "operator token to accept instead of a generated one"),
    "model": ("DIR", "Hugging Face directory or GGUF file, 'smollm2', or 'network'"),
    "chain-model": ("DIR", "the chain's own model (default: the small one that ships)"),
    "draft": (
        "DIR",
        "model that guesses tokens for a pipeline, 'int4' or 'int8' for a copy of the model "
        "itself, or 'none' (default: it ships)",
    ),
    "layers": ("LAYERS", "layers to hold: 'all', 'auto', N or FIRST-LAST (default all)"),
    "dtype": (
        "FORMAT",
        "of the weights: float32, bfloat16, float16, int8, int4 or auto (the default)",
    ),
    "device": ("DEVICE", "that computes: cpu, cuda, cuda:N or auto (default auto)"),
    "tracker": ("URL", "http://HOST:PORT of a node to join through; separate several by commas"),
    "chain-engine": ("ENGINE", "'solo', or 'cometbft' for a chain with many validators"),
    "chain-genesis": ("FILE", "genesis of a chain to begin or to join under CometBFT"),
    "chain-peers": ("PEERS", "ID@HOST:PORT of other validators' engines, separated by commas"),
    "tls-cert": ("FILE", "certificate for both ports, in PEM; needs --tls-key"),
    "tls-key": ("FILE", "the certificate's key, in PEM, which only its owner may read"),
    "tls-ca": ("FILE", "call peers over TLS, and believe certificates of these authorities"),
    "log-format": ("FORMAT", "'text' or 'json' (default text)"),
}
DOCTOR = "doctor"
"""It takes the options of the node, whose surroundings it examines."""
_ANY_COMMAND = "data-dir"
"""Every command works on a data folder."""
_WORKER_MODEL = "Hugging Face directory or GGUF file of the model"
"""A worker loads all layers from the disk: it cannot fetch a model from the network."""
_TRAINED_MODEL = "model that the node was started with"
_TAKEN = {("worker", "model"), ("worker", "chain-model"), ("model", "model")}
"""Options of the node that a command takes too."""
_ADVICE = {
    ("train", "model"): "the model to start from is --from DIR",
    ("token", "port"): "it works on the node's folder, --data-dir DIR",
    ("token", "host"): "it works on the node's folder, --data-dir DIR",
}
_GATEWAY_ADVICE = "choose the node to ask with --gateway URL"


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit."""
    options = command_parser().parse_args(arguments)
    try:
        toml_file = getattr(options, "config", None) or os.environ.get("MESHNODE_CONFIG")
        _refuse_options_of_the_node(options)
        if options.command == DOCTOR:
            sys.exit(run_doctor_command(options, _given(options), toml_file, _passphrase()))
        config = load_config(_given(options), os.environ, toml_file)
        if options.command == "token":
            from meshnode.token_command import run_token_command

            run_token_command(options, Path(config.data_dir), _passphrase(), config.token)
            sys.exit(0)
        if options.command == "chain":
            from meshnode.chain_command import run_chain_command

            run_chain_command(options, config, _passphrase())
            sys.exit(0)
        if options.command == "model":
            from meshnode.model_command import run_model_command

            run_model_command(options, config)
            sys.exit(0)
        if options.command == "train" and options.action == "status":
            sys.exit(run_training_status(options, config))
        if options.command == "train":
            from meshnode.train_command import run_train_command

            sys.exit(run_train_command(options, config))
        if options.command == "worker":
            run_worker_command(options, config.model, config.chain.model, Path(config.data_dir))
            sys.exit(0)
        if options.command == "peers":
            sys.exit(run_peers_command(options, config))
        if options.command == "watch":
            sys.exit(run_watch_command(options, config))
        if options.command is not None:
            sys.exit(client.run(options, config))
        sys.exit(_run_node(config))
    except MeshnodeError as error:
        sys.exit(client.failed(options, str(error)))
    except KeyboardInterrupt:
        sys.exit(130)


def _run_node(config: Config) -> int:
    # Check the ports before the imports below, which take seconds.
    check_ports(config)
    map_large_blocks()
    # Imported here because they import torch, and the other commands start faster without it.
    import trio

    from meshnode.logs import keep_recent_records, set_up_logging
    from meshnode.node import run_node
    from meshnode.supervise import ServiceFailed

    set_up_logging(config.log_format)
    keep_recent_records()
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
    keys = {flag: flag.replace("-", "_") for flag in FLAGS}
    given = {key: getattr(options, key, None) for key in keys.values()}
    given["tracker_url"] = given.pop("tracker")
    for name in ("model", "engine", "genesis", "peers"):
        given[f"chain.{name}"] = given.pop(f"chain_{name}")
    return {key: text for key, text in given.items() if text is not None}


def _refuse_options_of_the_node(options: argparse.Namespace) -> None:
    """Raise StartupError for an option of the node that the command would ignore."""
    command = options.command
    if command in (None, DOCTOR):
        return
    for flag in FLAGS:
        given = hasattr(options, flag.replace("-", "_"))
        if given and flag != _ANY_COMMAND and (command, flag) not in _TAKEN:
            asks = flag in ("host", "port") and command != "train"
            advice = _ADVICE.get((command, flag), _GATEWAY_ADVICE if asks else "")
            text = f"--{flag} is an option of the node, not of 'meshnode {command}'"
            raise StartupError(f"{text}; {advice}" if advice else text)


def _settings_flags(*shown: str, **texts: str) -> argparse.ArgumentParser:
    """A parser with ``--config`` and all flags of settings; only the ``shown`` ones are in help.

    ``texts`` replaces the help of a flag where its meaning is narrower than for the node.
    """
    flags = argparse.ArgumentParser(add_help=False)
    flags.add_argument(
        "--config", metavar="FILE", help="TOML file with settings", default=argparse.SUPPRESS
    )
    for flag, (metavar, text) in FLAGS.items():
        # No default: otherwise an absent flag after the command would override the one before it.
        flags.add_argument(
            f"--{flag}",
            metavar=metavar,
            help=texts.get(flag, text) if flag in shown else argparse.SUPPRESS,
            default=argparse.SUPPRESS,
        )
    return flags


def command_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line; the reference of commands is made from it, too."""
    parser = argparse.ArgumentParser(
        prog="meshnode",
        parents=[_settings_flags(*FLAGS)],
        description="A node of a distributed model network. Without a command it runs the node.",
        epilog="Each option of the node is also a MESHNODE_* variable and a key of the TOML file; "
        "further settings have only these two. docs/reference/configuration.md has the table.",
    )
    common = _settings_flags(_ANY_COMMAND)
    parser.add_argument("--version", action="version", version=f"meshnode {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    token = commands.add_parser("token", help="issue, list, revoke and sweep a node's tokens")
    actions = token.add_subparsers(dest="action", metavar="ACTION", required=True)
    issue = actions.add_parser("issue", parents=[common], help="make a token and print it once")
    issue.add_argument("--name", required=True, help="a name to recognise the token by")
    issue.add_argument(
        "--days",
        type=_days,
        default=90.0,
        metavar="DAYS",
        help="days until it expires (default 90)",
    )
    issue.add_argument(
        "--fund", metavar="UNITS", help="amount to pay from the node's account into the token's"
    )
    issue.add_argument(
        "--scope",
        metavar="SCOPES",
        help="some of infer, wallet, read, admin with commas (default infer,wallet,read)",
    )
    actions.add_parser(
        "rotate", parents=[common], help="change the operator's token, also of a running node"
    )
    actions.add_parser("list", parents=[common], help="show the tokens, without their secrets")
    revoke = actions.add_parser("revoke", parents=[common], help="make a token invalid at once")
    revoke.add_argument("which", metavar="ID", help="the id or the name that 'list' shows")
    sweep = actions.add_parser(
        "sweep",
        parents=[common],
        help="move the money of a revoked or expired token to the node's account",
    )
    sweep.add_argument("which", metavar="ID", help="the id or the name that 'list' shows")
    chain = commands.add_parser("chain", help="make a chain with several validators")
    add_chain_arguments(chain, common)
    model = commands.add_parser("model", help="list and export what training has made")
    _add_model_actions(model, _settings_flags(_ANY_COMMAND, "model", model=_TRAINED_MODEL))
    _add_train(commands, common)
    worker = commands.add_parser(
        "worker",
        parents=[_settings_flags(_ANY_COMMAND, "model", model=_WORKER_MODEL)],
        help="do training work for a sponsor, for pay",
    )
    add_worker_arguments(worker)
    doctor = commands.add_parser(
        DOCTOR,
        parents=[_settings_flags(*FLAGS)],
        help="check everything that the node needs, and say what to do",
    )
    add_doctor_arguments(doctor)
    peers = commands.add_parser("peers", parents=[common], help="show the nodes that a node knows")
    add_peers_arguments(peers)
    watch = commands.add_parser(
        "watch", parents=[common], help="show what happens in a node, as it happens"
    )
    add_watch_arguments(watch)
    client.add_commands(commands, common)
    return parser


def _add_model_actions(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    """Add the actions of ``meshnode model``."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    actions.add_parser("list", parents=[common], help="show the versions of the weights")
    export = actions.add_parser(
        "export", parents=[common], help="write a version as a Hugging Face directory"
    )
    export.add_argument(
        "--version", type=int, metavar="N", help="the version (default: the newest)"
    )
    export.add_argument("--out", type=Path, required=True, metavar="DIR", help="new directory")
    export.add_argument(
        "--join",
        type=Path,
        action="append",
        metavar="DIR",
        help="data folder of another node of a pipeline that trained; one for each of them",
    )


def _add_train(commands: Commands, common: argparse.ArgumentParser) -> None:
    train = commands.add_parser(
        "train",
        parents=[common],
        help="train a model on a folder of text, or show the training of nodes",
    )
    train.add_argument(
        "action",
        nargs="?",
        choices=("status",),
        help="status: show the training of a running node instead",
    )
    add_status_arguments(train)
    train.add_argument("--text", type=Path, metavar="DIR", help="folder of text files")
    train.add_argument("--steps", type=int, metavar="N", help="steps of the whole run")
    train.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="folder for the trained model and its checkpoint; the same command resumes from there",
    )
    train.add_argument(
        "--from",
        dest="start",
        type=Path,
        metavar="DIR",
        help="directory of the model to start from (default: the model that comes with meshnode)",
    )
    train.add_argument(
        "--fresh", action="store_true", help="start from random weights of the model's shape"
    )
    train.add_argument(
        "--batch-size", type=int, default=8, metavar="N", help="sequences in a step (default 8)"
    )
    train.add_argument(
        "--learning-rate", type=float, default=1e-4, metavar="RATE", help="default 0.0001"
    )
    train.add_argument(
        "--warmup",
        type=int,
        default=0,
        metavar="N",
        help="steps during which the learning rate rises from 0 (default 0)",
    )
