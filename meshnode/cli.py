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
from meshnode.client import commands as client
from meshnode.config import Config
from meshnode.doctor_command import add_doctor_arguments, run_doctor_command
from meshnode.domain.errors import MeshnodeError, StartupError
from meshnode.ports import check_ports
from meshnode.sources import load_config
from meshnode.worker_command import add_worker_arguments, run_worker_command

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

_FLAGS = {
    "host": ("ADDRESS", "address to listen on (default 127.0.0.1)"),
    "port": ("PORT", "HTTP port (default 8000); the gRPC port is always this plus 1000"),
    "data-dir": ("DIR", "data folder (default ~/.local/share/meshnode)"),
    "token": ("TOKEN", "operator token to accept instead of a generated one"),
    "model": ("DIR", "Hugging Face directory of a Llama-family model, or 'network'"),
    "layers": ("LAYERS", "layers to hold: 'all', 'auto', N or FIRST-LAST (default all)"),
    "tracker": ("URL", "http://HOST:PORT of a node to join through; separate several by commas"),
    "log-format": ("FORMAT", "'text' or 'json' (default text)"),
}
DOCTOR = "doctor"
"""It takes the options of the node, whose surroundings it examines."""
_ANY_COMMAND = "data-dir"
"""Every command works on a data folder."""
_WORKER_MODEL = "Hugging Face directory of a Llama-family model"
"""A worker loads all layers from the disk: it cannot fetch a model from the network."""
_ADVICE = {
    ("train", "model"): "the model to start from is --from DIR",
    ("token", "port"): "it works on the node's folder, --data-dir DIR",
    ("token", "host"): "it works on the node's folder, --data-dir DIR",
}
_GATEWAY_ADVICE = "choose the node to ask with --gateway URL"


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit."""
    options = _parser().parse_args(arguments)
    try:
        toml_file = getattr(options, "config", None) or os.environ.get("MESHNODE_CONFIG")
        _refuse_options_of_the_node(options)
        if options.command == DOCTOR:
            sys.exit(run_doctor_command(options, _given(options), toml_file, _passphrase()))
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
    # Check the ports before the imports below, which take seconds.
    check_ports(config)
    # Imported here because they import torch, and the other commands start faster without it.
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


def _refuse_options_of_the_node(options: argparse.Namespace) -> None:
    """Raise StartupError for an option of the node that the command would ignore."""
    command = options.command
    if command in (None, DOCTOR):
        return
    for flag in _FLAGS:
        given = hasattr(options, flag.replace("-", "_"))
        if given and flag != _ANY_COMMAND and (command, flag) != ("worker", "model"):
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
    for flag, (metavar, text) in _FLAGS.items():
        # No default: otherwise an absent flag after the command would override the one before it.
        flags.add_argument(
            f"--{flag}",
            metavar=metavar,
            help=texts.get(flag, text) if flag in shown else argparse.SUPPRESS,
            default=argparse.SUPPRESS,
        )
    return flags


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="meshnode",
        parents=[_settings_flags(*_FLAGS)],
        description="A node of a distributed model network. Without a command it runs the node.",
        epilog="Each option of the node is also a MESHNODE_* variable and a key of the TOML file; "
        "further settings have only these two. The README has the table.",
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
    actions.add_parser("list", parents=[common], help="show the tokens, without their secrets")
    revoke = actions.add_parser("revoke", parents=[common], help="make a token invalid at once")
    revoke.add_argument("which", metavar="ID", help="the id or the name that 'list' shows")
    sweep = actions.add_parser(
        "sweep",
        parents=[common],
        help="move the money of a revoked or expired token to the node's account",
    )
    sweep.add_argument("which", metavar="ID", help="the id or the name that 'list' shows")
    _add_train(commands, common)
    worker = commands.add_parser(
        "worker",
        parents=[_settings_flags(_ANY_COMMAND, "model", model=_WORKER_MODEL)],
        help="do training work for a sponsor, for pay",
    )
    add_worker_arguments(worker)
    doctor = commands.add_parser(
        DOCTOR,
        parents=[_settings_flags(*_FLAGS)],
        help="check everything that the node needs, and say what to do",
    )
    add_doctor_arguments(doctor)
    client.add_commands(commands, common)
    return parser


def _add_train(commands: Commands, common: argparse.ArgumentParser) -> None:
    train = commands.add_parser("train", parents=[common], help="train a model on a folder of text")
    train.add_argument(
        "--text", type=Path, required=True, metavar="DIR", help="folder of text files"
    )
    train.add_argument(
        "--steps", type=int, required=True, metavar="N", help="steps of the whole run"
    )
    train.add_argument(
        "--out",
        type=Path,
        required=True,
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
