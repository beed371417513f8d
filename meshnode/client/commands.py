"""The ``meshnode`` commands for users of a chain: arguments, actions and exit statuses.

The node's command line includes these commands with two calls, :func:`add_commands` and
:func:`run`. Exit statuses are in :mod:`meshnode.client.errors`. With ``--json`` there is exactly
one JSON document on standard output, even after a failure, but not for arguments that cannot be
parsed. Otherwise the outcome is on standard output. Progress and errors are on standard error.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from meshnode.client import keeping, paying, reading
from meshnode.client.errors import MISUSED, UNKNOWN, ClientError
from meshnode.client.session import Report, Session
from meshnode.config import Config
from meshnode.domain.chain.canonical import Json, encode
from meshnode.domain.errors import MeshnodeError

if TYPE_CHECKING:
    # For the type checker only, because at run time the class is not generic.
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

MAX_WAIT_S: Final = 86_400.0

DEFAULT_WAIT: Final = 120.0
"""Seconds; longer than most requests need for their answer, which takes a few blocks."""

Action = Callable[[Session], Report]

_ACTIONS: dict[str, Action] = {
    "key new": keeping.key_new,
    "key show": lambda s: keeping.key_show(s, secret=s.options.secret),
    "key import": lambda s: keeping.key_import(s, s.options.file),
    "key export": lambda s: keeping.key_export(s, s.options.file),
    "account": lambda s: reading.show_account(s, s.options.public_key),
    "status": reading.show_status,
    "validators": reading.show_validators,
    "block": lambda s: reading.show_block(s, s.options.height),
    "request": lambda s: reading.show_request(s, s.options.id, _wait(s)),
    "transfer": lambda s: paying.transfer(s, s.options.to, s.options.amount, _wait(s)),
    "infer": lambda s: paying.infer(s, _wait(s)),
    "bond": lambda s: paying.bond(s, s.options.amount, s.options.consensus_key, _wait(s)),
    "unbond": lambda s: paying.leave(s, "unbond", s.options.consensus_key, _wait(s)),
    "withdraw": lambda s: paying.leave(s, "withdraw", s.options.consensus_key, _wait(s)),
    "stake": lambda s: paying.stake(s, s.options.amount, s.options.days, _wait(s)),
    "unstake": lambda s: paying.unstake(s, s.options.amount, _wait(s)),
    "outbox": keeping.outbox_list,
    "outbox list": keeping.outbox_list,
    "outbox resume": lambda s: keeping.outbox_resume(s, s.options.id, _wait(s)),
    "outbox forget": lambda s: keeping.outbox_forget(s, s.options.id),
    "network export": lambda s: keeping.network_export(
        s, s.options.out, s.options.url, s.options.name
    ),
    "network forget": lambda s: keeping.network_forget(s, s.options.url),
}


def run(options: argparse.Namespace, config: Config) -> int:
    """Carry out one command, print its outcome, and return the exit status."""
    session = Session(options, Path(config.data_dir))
    name = " ".join(filter(None, (options.command, getattr(options, "client_action", None))))
    try:
        report = _ACTIONS[name](session)
    except ClientError as error:
        return failed(options, str(error), error.status, dict(error.details))
    except MeshnodeError as error:
        return failed(options, str(error))
    except sqlite3.Error as error:
        # An entry in the outbox may have been sent, so the outcome is unknown.
        return failed(options, f"the outbox cannot be read: {error}", UNKNOWN)
    finally:
        session.close()
    if _as_json(options):
        _say(encode(report.value).decode("ascii"))
    else:
        _say(report.text)
    return report.status


def failed(
    options: argparse.Namespace,
    message: str,
    status: int = MISUSED,
    details: Mapping[str, Json] = MappingProxyType({}),
) -> int:
    """Print why a command failed, also as JSON if ``--json`` was given; returns ``status``."""
    if _as_json(options):
        value: dict[str, Json] = {**details, "error": message, "status": status}
        _say(encode(value).decode("ascii"))
    print(f"meshnode: {message}", file=sys.stderr)
    return status


def _say(text: str) -> None:
    """Print to standard output. A reader that has closed, such as ``head``, is not a failure."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # Otherwise the interpreter would report the closed pipe again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _as_json(options: argparse.Namespace) -> bool:
    return getattr(options, "json", False)


def _wait(session: Session) -> float:
    given: float | None = session.options.wait
    usual = 0.0 if session.options.command == "request" else DEFAULT_WAIT
    return usual if given is None else given


def add_commands(commands: Subparsers, common: argparse.ArgumentParser) -> None:
    """Add the sub-commands to the node's; ``common`` has the flags that every command takes."""
    # No defaults: a flag given before an action must survive its absence after the action.
    here = argparse.ArgumentParser(
        add_help=False, parents=[common], argument_default=argparse.SUPPRESS
    )
    here.add_argument("--json", action="store_true", help="print one JSON document")
    here.add_argument(
        "--key",
        metavar="FILE",
        help="key file (default: MESHNODE_KEY, or DATA-DIR/client/key.json)",
    )
    here.add_argument(
        "--network", metavar="FILE", help="network descriptor (default: MESHNODE_NETWORK)"
    )
    here.add_argument(
        "--gateway",
        metavar="URL",
        help="node to ask (default: the descriptor's, MESHNODE_GATEWAY, or http://127.0.0.1:8000)",
    )
    waiting = argparse.ArgumentParser(add_help=False, parents=[here])
    waiting.add_argument(
        "--wait",
        metavar="SECONDS",
        type=_seconds,
        help="how long to wait for the outcome (default 120; 'request': 0)",
    )
    _add_keys(commands, here)
    _add_reading(commands, here, waiting)
    _add_paying(commands, waiting)
    _add_outbox(commands, here, waiting)
    _add_network(commands, here)


def _add_keys(commands: Subparsers, here: argparse.ArgumentParser) -> None:
    actions = _group(commands, "key", "make, show, import and export keys")
    saving = argparse.ArgumentParser(add_help=False, parents=[here])
    saving.add_argument(
        "--passphrase", action="store_true", help="encrypt the file with a passphrase"
    )
    saving.add_argument("--format", metavar="NAME", help="format name to write into the file")
    actions.add_parser("new", parents=[saving], help="make a key")
    show = actions.add_parser("show", parents=[here], help="show the public key and its address")
    show.add_argument("--secret", action="store_true", help="show the secret seed too")
    for name, text in (("import", "import a backup"), ("export", "write a copy")):
        action = actions.add_parser(name, parents=[saving], help=text)
        action.add_argument("file", metavar="FILE")


def _add_reading(
    commands: Subparsers, here: argparse.ArgumentParser, waiting: argparse.ArgumentParser
) -> None:
    commands.add_parser("status", parents=[here], help="show the network and your account")
    account = commands.add_parser(
        "account", parents=[here], help="show an account's balance and nonce"
    )
    account.add_argument(
        "public_key", metavar="ACCOUNT", nargs="?", help="address or public key (default: yours)"
    )
    commands.add_parser("validators", parents=[here], help="list validators")
    block = commands.add_parser("block", parents=[here], help="show a block")
    block.add_argument(
        "height", metavar="HEIGHT", nargs="?", default="latest", help="default: the latest block"
    )
    request = commands.add_parser("request", parents=[waiting], help="show an inference request")
    request.add_argument(
        "id", metavar="ID", help="request id, or the beginning that 'outbox' shows"
    )


def _add_paying(commands: Subparsers, waiting: argparse.ArgumentParser) -> None:
    transfer = commands.add_parser(
        "transfer", parents=[waiting], help="send an amount to an account"
    )
    transfer.add_argument(
        "to", metavar="TO", help="address (mesh1...) or public key of the receiver"
    )
    infer = commands.add_parser("infer", parents=[waiting], help="pay for an answer of the model")
    infer.add_argument(
        "prompt", metavar="PROMPT", help="the prompt, which becomes public; - reads standard input"
    )
    infer.add_argument(
        "--max-tokens",
        metavar="N",
        type=int,
        help="longest answer in tokens (default 32); all N are charged, whatever is generated",
    )
    infer.add_argument(
        "--price-ceiling",
        metavar="UNITS",
        default=paying.DEFAULT_CEILING,
        help=f"highest price, fee included (default {paying.DEFAULT_CEILING})",
    )
    infer.add_argument(
        "--provider", metavar="ACCOUNT", help="who is to answer (default: the network's)"
    )
    bond = commands.add_parser("bond", parents=[waiting], help="put up a bond as a validator")
    stake = commands.add_parser("stake", parents=[waiting], help="lock an amount for some days")
    unstake = commands.add_parser("unstake", parents=[waiting], help="begin to take back a stake")
    for command in (transfer, bond, stake, unstake):
        command.add_argument("amount", metavar="AMOUNT", help="whole units, up to six decimals")
    bond.add_argument(
        "--consensus-key", metavar="FILE", required=True, help="file of the validator's Ed25519 key"
    )
    stake.add_argument(
        "--days", type=int, required=True, metavar="N", help="days that it stays locked"
    )
    for name, text in (
        ("unbond", "stop being a validator"),
        ("withdraw", "take a bond back after unbond"),
    ):
        command = commands.add_parser(name, parents=[waiting], help=text)
        command.add_argument(
            "consensus_key", metavar="KEY", help="consensus key, or the file that has it"
        )


def _add_outbox(
    commands: Subparsers, here: argparse.ArgumentParser, waiting: argparse.ArgumentParser
) -> None:
    text = "list what was signed here, and its outcome"
    actions = _group(commands, "outbox", text, parent=here)
    actions.add_parser("list", parents=[here], help=text)
    resume = actions.add_parser(
        "resume",
        parents=[waiting],
        help="ask for open outcomes; send the same bytes again if needed",
    )
    resume.add_argument(
        "id",
        metavar="ID",
        nargs="?",
        help="id, or its beginning (default: everything that is open)",
    )
    forget = actions.add_parser(
        "forget", parents=[here], help="give up an entry whose outcome is unknown"
    )
    forget.add_argument("id", metavar="ID")


def _add_network(commands: Subparsers, here: argparse.ArgumentParser) -> None:
    actions = _group(commands, "network", "describe a network, or forget a gateway's")
    export = actions.add_parser(
        "export", parents=[here], help="write a descriptor of a gateway's network"
    )
    export.add_argument("--out", metavar="FILE", required=True, help="file to write")
    export.add_argument(
        "--url", metavar="URL", help="URL by which others reach it (default: the gateway's)"
    )
    export.add_argument("--name", metavar="NAME", help="the network's name (default: its chain id)")
    forget = actions.add_parser(
        "forget", parents=[here], help="accept that a gateway is on another chain now"
    )
    forget.add_argument("url", metavar="URL")


def _group(
    commands: Subparsers, name: str, text: str, parent: argparse.ArgumentParser | None = None
) -> Subparsers:
    group = commands.add_parser(name, help=text, parents=[parent] if parent else [])
    return group.add_subparsers(dest="client_action", metavar="ACTION", required=parent is None)


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds <= MAX_WAIT_S:
        raise argparse.ArgumentTypeError(f"must be between 0 and {MAX_WAIT_S:.0f}")
    return seconds
