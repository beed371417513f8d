"""``meshnode`` for users of a chain: arguments, and from them to one action and one exit status.

The command line of the node takes these in with two calls, :func:`add_commands` and :func:`run`.
Exit statuses are in :mod:`meshnode.client.errors`. With ``--json`` there is exactly one JSON
document on standard output, also when something failed; otherwise the outcome is on standard output
and progress on standard error.
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
    # Only a name for the type checker: the class itself is generic there alone.
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

LONGEST_WAIT: Final = 86_400.0

DEFAULT_WAIT: Final = 120.0
"""Seconds; a request is answered within its first few blocks, or expires."""

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
    """Carry out one command and print its outcome; the process's exit status."""
    session = Session(options, Path(config.data_dir))
    name = " ".join(filter(None, (options.command, getattr(options, "client_action", None))))
    try:
        report = _ACTIONS[name](session)
    except ClientError as error:
        return failed(options, str(error), error.status, dict(error.details))
    except MeshnodeError as error:
        return failed(options, str(error))
    except sqlite3.Error as error:
        # What is in the outbox may have been sent; so nobody is told that nothing happened.
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
    """Print why a command failed, as it wants it printed; ``status`` again, to exit with."""
    if _as_json(options):
        value: dict[str, Json] = {**details, "error": message, "status": status}
        _say(encode(value).decode("ascii"))
    print(f"meshnode: {message}", file=sys.stderr)
    return status


def _say(text: str) -> None:
    """Print to standard output; a reader such as ``head`` may have gone, and the outcome stands."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # The interpreter would complain once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _as_json(options: argparse.Namespace) -> bool:
    return getattr(options, "json", False)


def _wait(session: Session) -> float:
    given: float | None = session.options.wait
    usual = 0.0 if session.options.command == "request" else DEFAULT_WAIT
    return usual if given is None else given


def add_commands(commands: Subparsers, common: argparse.ArgumentParser) -> None:
    """Add the sub-commands to the node's; ``common`` has the flags that every command takes."""
    # No defaults: a flag that is absent after an action must not hide the one before it.
    here = argparse.ArgumentParser(
        add_help=False, parents=[common], argument_default=argparse.SUPPRESS
    )
    here.add_argument("--json", action="store_true", help="one JSON document on standard output")
    here.add_argument("--key", metavar="FILE", help="key file (default DATA-DIR/client/key.json)")
    here.add_argument("--network", metavar="FILE", help="network descriptor")
    here.add_argument(
        "--gateway", metavar="URL", help="gateway to ask (default http://127.0.0.1:8000)"
    )
    waiting = argparse.ArgumentParser(add_help=False, parents=[here])
    waiting.add_argument(
        "--wait",
        metavar="SECONDS",
        type=_seconds,
        help="how long to wait for the outcome (default 120; of 'request': 0)",
    )
    _add_keys(commands, here)
    _add_reading(commands, here, waiting)
    _add_paying(commands, waiting)
    _add_outbox(commands, here, waiting)
    _add_network(commands, here)


def _add_keys(commands: Subparsers, here: argparse.ArgumentParser) -> None:
    actions = _group(commands, "key", "make, show, import and export keys")
    saving = argparse.ArgumentParser(add_help=False, parents=[here])
    saving.add_argument("--passphrase", action="store_true", help="seal the file")
    saving.add_argument("--format", metavar="NAME", help="the file's format name")
    actions.add_parser("new", parents=[saving], help="make a key")
    show = actions.add_parser("show", parents=[here], help="show the public key")
    show.add_argument("--secret", action="store_true", help="show the seed, too")
    for name, text in (("import", "take over a backup"), ("export", "write a copy")):
        action = actions.add_parser(name, parents=[saving], help=text)
        action.add_argument("file", metavar="FILE")


def _add_reading(
    commands: Subparsers, here: argparse.ArgumentParser, waiting: argparse.ArgumentParser
) -> None:
    commands.add_parser("status", parents=[here], help="show the network and the own account")
    account = commands.add_parser("account", parents=[here], help="show balance and nonce")
    account.add_argument("public_key", metavar="KEY", nargs="?", help="default: the own")
    commands.add_parser("validators", parents=[here], help="list validators")
    block = commands.add_parser("block", parents=[here], help="show a block")
    block.add_argument("height", metavar="HEIGHT", nargs="?", default="latest")
    request = commands.add_parser("request", parents=[waiting], help="show an inference request")
    request.add_argument("id", metavar="ID")


def _add_paying(commands: Subparsers, waiting: argparse.ArgumentParser) -> None:
    transfer = commands.add_parser("transfer", parents=[waiting], help="send an amount")
    transfer.add_argument("to", metavar="TO", help="public key of the receiver")
    infer = commands.add_parser("infer", parents=[waiting], help="pay for an answer of the model")
    infer.add_argument("prompt", metavar="PROMPT", help="public text; - reads standard input")
    infer.add_argument("--max-tokens", metavar="N", type=int, help="default 32")
    infer.add_argument(
        "--price-ceiling",
        metavar="UNITS",
        default=paying.DEFAULT_CEILING,
        help=f"most that price and fee together may take (default {paying.DEFAULT_CEILING})",
    )
    infer.add_argument("--provider", metavar="KEY", help="public key of a chosen provider")
    bond = commands.add_parser("bond", parents=[waiting], help="put up a bond as a validator")
    stake = commands.add_parser("stake", parents=[waiting], help="lock an amount")
    unstake = commands.add_parser("unstake", parents=[waiting], help="take back what was staked")
    for command in (transfer, bond, stake, unstake):
        command.add_argument("amount", metavar="AMOUNT", help="whole units, up to six decimals")
    bond.add_argument("--consensus-key", metavar="FILE", required=True, help="Ed25519 key file")
    stake.add_argument("--days", type=int, required=True, help="until it can be taken back")
    for name, text in (("unbond", "leave the validators"), ("withdraw", "take the bond back")):
        command = commands.add_parser(name, parents=[waiting], help=text)
        command.add_argument("consensus_key", metavar="KEY", help="consensus key, or its file")


def _add_outbox(
    commands: Subparsers, here: argparse.ArgumentParser, waiting: argparse.ArgumentParser
) -> None:
    text = "what was signed here, and what became of it"
    actions = _group(commands, "outbox", text, parent=here)
    actions.add_parser("list", parents=[here], help=text)
    resume = actions.add_parser("resume", parents=[waiting], help="ask, and send the same again")
    resume.add_argument("id", metavar="ID", nargs="?", help="default: everything that is open")
    forget = actions.add_parser("forget", parents=[here], help="stop asking about an entry")
    forget.add_argument("id", metavar="ID")


def _add_network(commands: Subparsers, here: argparse.ArgumentParser) -> None:
    actions = _group(commands, "network", "network descriptors")
    export = actions.add_parser("export", parents=[here], help="describe a gateway's network")
    export.add_argument("--out", metavar="FILE", required=True)
    export.add_argument("--url", help="where others reach it (default: the gateway's URL)")
    export.add_argument("--name", help="the network's name (default: its chain id)")
    forget = actions.add_parser(
        "forget", parents=[here], help="let a gateway be on another chain than before"
    )
    forget.add_argument("url", metavar="URL")


def _group(
    commands: Subparsers, name: str, text: str, parent: argparse.ArgumentParser | None = None
) -> Subparsers:
    group = commands.add_parser(name, help=text, parents=[parent] if parent else [])
    return group.add_subparsers(dest="client_action", metavar="ACTION", required=parent is None)


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds <= LONGEST_WAIT:
        raise argparse.ArgumentTypeError(f"must be between 0 and {LONGEST_WAIT:.0f}")
    return seconds
