"""``meshnode watch``: what happens in a node, as it happens.

On a terminal it is a table that updates in place, elsewhere a line for each event. Exit statuses
are those of :mod:`meshnode.client.errors`; an interruption by the user is a success.
"""

from __future__ import annotations

import argparse
import os
import ssl
import sys
from contextlib import suppress
from pathlib import Path

from meshnode.client.commands import failed
from meshnode.client.errors import REFUSED, ClientError, Misused
from meshnode.client.transport import check_url
from meshnode.config import Config

TOKEN_FILE = "operator.token"  # noqa: S105 - a file's name


def add_node_arguments(parser: argparse.ArgumentParser, purpose: str) -> None:
    """Add the arguments of a command that asks one node; ``purpose`` is a verb for its help."""
    parser.add_argument(
        "url",
        metavar="URL",
        nargs="?",
        help=f"node to {purpose} (default: the one on this machine)",
    )
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        type=Path,
        help="file with the token (default: MESHNODE_TOKEN; for the node on this machine, the "
        "token in its data folder)",
    )


def node_url(options: argparse.Namespace, config: Config) -> str:
    """The address of the node that such a command asks. Raises ClientError."""
    scheme = "https" if config.tls_cert else "http"
    return check_url(options.url or f"{scheme}://127.0.0.1:{config.port}")


def add_watch_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_node_arguments(parser, "watch")
    parser.add_argument("--lines", action="store_true", help="print lines on a terminal too")


def run_watch_command(options: argparse.Namespace, config: Config) -> int:
    """Watch until interrupted."""
    # Imported here because the libraries take half a second, which other commands need not wait.
    import trio

    from meshnode.client.watching.stream import Watch, watch_in_lines, watch_on_screen

    base = node_url(options, config)
    url, token = base.replace("http", "ws", 1) + "/ws", read_token(options, config)
    watch = Watch(url, token, _trust(config))
    show = watch_on_screen if sys.stdout.isatty() and not options.lines else watch_in_lines
    status = 0
    try:
        trio.run(show, watch)
    except* KeyboardInterrupt:
        pass
    except* BrokenPipeError:
        # The reader, such as head, has closed. At exit the interpreter would report it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except* ClientError as group:
        failure: BaseException = group
        while isinstance(failure, BaseExceptionGroup):
            failure = failure.exceptions[0]
        status = failed(options, str(failure), getattr(failure, "status", REFUSED))
    return status


def _trust(config: Config) -> ssl.SSLContext | None:
    if not config.tls_ca:
        return None
    try:
        return ssl.create_default_context(cafile=config.tls_ca)
    except OSError as error:
        raise Misused(f"tls_ca: cannot use {config.tls_ca}: {error}") from None


def read_token(options: argparse.Namespace, config: Config) -> str:
    """The token to send, or "". Raises Misused if the file that was named cannot be read.

    The operator's token of this machine's node is sent to no other one.
    """
    if options.token_file is not None:
        try:
            return str(options.token_file.read_text().strip())
        except (OSError, UnicodeDecodeError) as error:
            raise Misused(f"--token-file: cannot read {options.token_file}: {error}") from None
    if config.token or options.url:
        return config.token
    with suppress(OSError, UnicodeDecodeError):
        return (Path(config.data_dir) / TOKEN_FILE).read_text().strip()
    return ""
