"""``meshnode chain``: make a chain of several validators, or join one (decisions 0178, 0221).

Each operator sends the line that ``show`` prints to one of them, who makes the genesis with
``init`` and gives it back. The lines have no secrets.
"""

from __future__ import annotations

import argparse
import re
import time
from dataclasses import dataclass
from pathlib import Path

from meshnode.config import Config
from meshnode.domain.addresses import NODE_URLS_OR_EMPTY
from meshnode.domain.errors import InvalidRequest, StartupError

_LINE = re.compile(r"(0[23][0-9a-f]{64}):([0-9a-f]{64}):([0-9a-f]{40}@[0-9A-Za-z.:_-]+:\d{1,5})")


@dataclass(frozen=True, slots=True)
class ValidatorLine:
    """What others must know of a validator: account, consensus key, and its engine's address."""

    owner: str
    consensus_key: str
    peer: str

    @property
    def text(self) -> str:
        """What :meth:`parse` reads."""
        return f"{self.owner}:{self.consensus_key}:{self.peer}"

    @classmethod
    def parse(cls, text: str) -> ValidatorLine:
        """Read what ``meshnode chain show`` printed. Raises InvalidRequest."""
        match = _LINE.fullmatch(text.strip())
        if match is None:
            raise InvalidRequest("--validators", f"{text[:80]!r} is no line of 'chain show'")
        return cls(match[1], match[2], match[3])


def add_chain_arguments(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    """Add the actions of ``meshnode chain``."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    show = actions.add_parser(
        "show", parents=[common], help="print what others must know of this node as a validator"
    )
    show.add_argument(
        "--address",
        required=True,
        metavar="HOST:PORT",
        help="where the others' engines reach this node's: by default the HTTP port plus 2000",
    )
    init = actions.add_parser(
        "init", parents=[common], help="make the genesis of a chain with several validators"
    )
    init.add_argument(
        "--validators",
        required=True,
        metavar="LINE[,LINE...]",
        help="what 'meshnode chain show' printed on each machine",
    )
    init.add_argument("--out", required=True, type=Path, metavar="FILE", help="file to write")
    trust = actions.add_parser(
        "trust", parents=[common], help="print how a new node begins with a snapshot"
    )
    trust.add_argument(
        "urls",
        nargs="+",
        metavar="URL",
        help="two or more nodes under CometBFT that you trust",
    )


def run_chain_command(options: argparse.Namespace, config: Config, passphrase: str) -> None:
    """Carry out one action and print its outcome. Raises InvalidRequest or StartupError."""
    if options.action == "show":
        print(own_line(Path(config.data_dir), options.address, passphrase).text)
        return
    if options.action == "trust":
        _print_trust(options.urls, config)
        return
    lines = [ValidatorLine.parse(one) for one in options.validators.split(",") if one.strip()]
    if not lines:
        raise InvalidRequest("--validators", "names no validator")
    _write_new(options.out, _genesis(lines, config))
    print(f"written: {options.out}. On every machine, with this file:")
    print('  MESHNODE_CHAIN_ENGINE="cometbft"')
    print(f'  MESHNODE_CHAIN_GENESIS="{options.out.name}"')
    print(f'  MESHNODE_CHAIN_PEERS="{",".join(one.peer for one in lines)}"')


def own_line(data_dir: Path, address: str, passphrase: str) -> ValidatorLine:
    """This node as a validator; its keys are made if it has none yet. Raises StartupError."""
    from meshnode.services.engine.home import engine_id, node_key
    from meshnode.services.keystore import Keystore
    from meshnode.services.ledger.validator_key import load_or_create_validator_key

    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = Keystore(data_dir, passphrase).node_key
    validator = load_or_create_validator_key(data_dir)
    line = f"{key.public_key}:{validator.public_key}:{engine_id(node_key(key.seed))}@{address}"
    if _LINE.fullmatch(line) is None:
        raise InvalidRequest("--address", "must be HOST:PORT")
    return ValidatorLine.parse(line)


def _print_trust(urls: list[str], config: Config) -> None:
    from meshnode.services.engine.trusting import find_trusted_block

    servers = list(dict.fromkeys(url.rstrip("/") for url in urls))
    if len(servers) < 2:
        raise InvalidRequest("URL", "name two nodes or more, so that they are compared")
    for url in servers:
        if re.fullmatch(NODE_URLS_OR_EMPTY, url) is None or "," in url:
            raise InvalidRequest("URL", f"{url[:80]!r} must be http://HOST:PORT")
    height, found = find_trusted_block(servers, config.tls_ca)
    print(f"all of them have block {height}. Compare its hash with somebody you trust.")
    print(f'  MESHNODE_CHAIN_STATE_SYNC="{",".join(servers)}"')
    print(f'  MESHNODE_CHAIN_TRUST="{height}:{found}"')


def _genesis(lines: list[ValidatorLine], config: Config) -> bytes:
    # Imported here because they import torch, which takes seconds.
    from meshnode.domain.chain.canonical import encode
    from meshnode.domain.chain.errors import Rejected
    from meshnode.domain.chain.genesis import genesis_document
    from meshnode.domain.chain.profile import NetworkProfile
    from meshnode.model.documents import ModelUnreadable
    from meshnode.model.files import locate_model
    from meshnode.model.loading import DEFAULT_MODEL
    from meshnode.services.ledger.genesis import genesis_of_many, read_profile_file
    from meshnode.services.work.execution import load_execution

    profile = read_profile_file(Path(config.network_profile)) if config.network_profile else None
    directory = locate_model(config.chain.model) if config.chain.model else DEFAULT_MODEL
    folder = Path(config.data_dir) / "execution"
    try:
        execution = load_execution(directory, folder, profile or NetworkProfile())
        keys = [(one.owner, one.consensus_key) for one in lines]
        start = genesis_of_many(keys, execution.genesis_facts(), profile, time.time_ns())
        return encode(genesis_document(start))
    except ModelUnreadable as error:
        raise StartupError(f"no chain with this model: {error}") from None
    except Rejected:
        raise InvalidRequest("--validators", "names a validator twice, or an invalid key") from None


def _write_new(path: Path, content: bytes) -> None:
    try:
        with path.open("xb") as file:
            file.write(content)
    except OSError as error:
        raise StartupError(f"cannot write {path}: {error.strerror}") from None
