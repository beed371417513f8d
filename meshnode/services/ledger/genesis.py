"""The genesis: made here at the first start, or fetched from the node that this one follows.

The document is stored once, in the ledger, with its SHA-256. After that, neither a tracker nor a
setting can change which chain this data folder holds (decisions 0073 and 0074).
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import time
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from meshnode.domain.chain.canonical import encode
from meshnode.domain.chain.comet.times import format_time
from meshnode.domain.chain.errors import InvalidGenesis, Rejected
from meshnode.domain.chain.genesis import (
    Genesis,
    GenesisFacts,
    GenesisValidator,
    genesis_document,
    parse_genesis,
)
from meshnode.domain.chain.profile import NetworkProfile, profile_manifest, read_profile
from meshnode.domain.errors import InvalidRequest, RateLimited, StartupError, Unavailable
from meshnode.services.ledger.database import create_ledger, damaged, stored_genesis
from meshnode.services.ledger.follower import Backoff, in_time

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshnode.domain.chain.canonical import Json
    from meshnode.services.ledger.follower import BlockSource
    from meshnode.services.ledger.validator_key import ValidatorKey

log = logging.getLogger(__name__)

SUPPLY_UNITS = 1_000_000
BOND_UNITS = 100_000
"""The part of the supply that the first validator bonds. All others together may bond half as much;
above that, one block maker no longer has two thirds of the power (decision 0072)."""
FIRST_ANSWER_S = 15.0
"""How long a first start waits for the tracker. Later starts do not need it."""


class ChainNotReached(StartupError):
    """The chain to follow cannot be reached yet; trying again later may succeed."""


def load_or_create_genesis(
    data_dir: Path,
    owner: str,
    validator: ValidatorKey,
    facts: GenesisFacts,
    profile: NetworkProfile | None = None,
    now_ns: int | None = None,
) -> bytes:
    """The genesis of the chain in ``data_dir``, or of a new one whose supply ``owner`` holds.

    ``owner`` is an account's key. Raises StartupError when the stored chain has another validator,
    was made with another model, or cannot be trusted.
    """
    genesis = stored_genesis(data_dir)
    if genesis is None:
        start = new_genesis(owner, validator.public_key, facts, profile, now_ns or time.time_ns())
        genesis = encode(genesis_document(start))
        create_ledger(data_dir, genesis)
        return genesis
    start = _parse(data_dir, genesis)
    if all(one.consensus_key != validator.public_key for one in start.validators):
        raise StartupError(
            f"{data_dir} holds the chain {start.chain_id} of another validator; "
            "name its tracker, or use another data folder"
        )
    require_facts(start, facts)
    return genesis


def load_given_genesis(data_dir: Path, file: str, facts: GenesisFacts) -> bytes:
    """The genesis of the chain in ``data_dir``, which is that of ``file`` if a file is named.

    Raises StartupError when there is neither, when they differ, when the file cannot be read, or
    when the chain was made with another model.
    """
    stored = stored_genesis(data_dir)
    genesis = read_genesis_file(Path(file)) if file else stored
    if genesis is None:
        raise StartupError(f"there is no chain in {data_dir}, and chain.genesis names none")
    if stored is not None and stored != genesis:
        raise StartupError(
            f"{data_dir} holds the chain {_parse(data_dir, stored).chain_id}, and {file} is "
            "another one; use another data folder"
        )
    require_facts(_parse(data_dir, genesis), facts)
    if stored is None:
        create_ledger(data_dir, genesis)
    return genesis


def read_genesis_file(path: Path) -> bytes:
    """A genesis document. Raises StartupError when it cannot be read or is none."""
    try:
        genesis = path.read_bytes()
    except OSError as error:
        raise StartupError(f"cannot read the genesis {path}: {error.strerror}") from None
    if not _is_genesis(genesis):
        raise StartupError(f"{path} is not the genesis of a chain that this node understands")
    return genesis


def chain_profile(data_dir: Path, file: str = "", genesis_file: str = "") -> NetworkProfile:
    """The profile of the chain in ``data_dir``, or of one to be started there (decision 0103).

    ``file`` is the path of a file for :func:`read_profile_file`, or empty; ``genesis_file`` that of
    a genesis. Raises StartupError when a file is invalid, or differs from the profile of a chain
    that is already there.
    """
    given = read_profile_file(Path(file)) if file else None
    stored = stored_genesis(data_dir)
    if stored is None and genesis_file:
        stored = read_genesis_file(Path(genesis_file))
    if stored is None:
        return given or NetworkProfile()
    start = _parse(data_dir, stored)
    if given not in (None, start.profile):
        raise StartupError(
            f"{data_dir} holds the chain {start.chain_id}, whose profile is not that of {file}, "
            "and never changes; name no file, or use another data folder"
        )
    return start.profile


def stored_manifest(data_dir: Path, file: str = "") -> Mapping[str, Json] | None:
    """The manifest of the chain in ``data_dir``, or of a genesis ``file``; None without a chain.

    Raises StartupError.
    """
    stored = stored_genesis(data_dir)
    if stored is None and file:
        stored = read_genesis_file(Path(file))
    return None if stored is None else _parse(data_dir, stored).manifest


def read_profile_file(path: Path) -> NetworkProfile:
    """The default profile with the values that a TOML file changes. Raises StartupError."""
    try:
        given = tomllib.loads(path.read_bytes().decode())
    except OSError as error:
        raise StartupError(f"cannot read the network profile {path}: {error.strerror}") from None
    except ValueError as error:
        raise StartupError(f"the network profile {path} is not TOML: {error}") from None
    manifest = profile_manifest(NetworkProfile())
    usual = {"name": manifest["profile"], "params": manifest["params"], **manifest["network"]}  # type: ignore[dict-item]
    try:
        values = _merged(usual, given)
        name, params = values.pop("name"), values.pop("params")
        return read_profile({"profile": name, "params": params, "network": values})
    except InvalidRequest as error:
        raise StartupError(f"the network profile {path}: {error}") from None
    except InvalidGenesis:
        raise StartupError(
            f"the network profile {path}: kinds are those of the node, texts have 1 to 128 "
            "characters, numbers are from 1 to 2^60"
        ) from None


def _merged(usual: dict[str, Any], given: dict[str, Any], group: str = "") -> dict[str, Any]:
    values = dict(usual)
    for name, value in given.items():
        if name not in usual:
            raise InvalidRequest(group + name, "is not part of a profile")
        if type(value) is not type(usual[name]):
            raise InvalidRequest(group + name, f"must be like {usual[name]!r}")
        is_group = isinstance(value, dict)
        values[name] = _merged(usual[name], value, f"{name}.") if is_group else value
    return values


def new_genesis(
    owner: str,
    consensus_key: str,
    facts: GenesisFacts,
    profile: NetworkProfile | None = None,
    now_ns: int = 0,
) -> Genesis:
    """A chain with one validator and a unique name."""
    return genesis_of_many([(owner, consensus_key)], facts, profile, now_ns)


def genesis_of_many(
    validators: Sequence[tuple[str, str]],
    facts: GenesisFacts,
    profile: NetworkProfile | None = None,
    now_ns: int = 0,
) -> Genesis:
    """A chain with a unique name, whose validators have equal bonds and equal money.

    ``validators`` lists accounts and consensus keys. The supply is that of a chain with one.
    """
    rules = profile or NetworkProfile()
    unit, scale = rules.params.bond_unit, rules.params.atom_scale
    share, left = divmod(SUPPLY_UNITS * scale, len(validators))
    bond = BOND_UNITS * scale // len(validators) // unit * unit
    return Genesis(
        chain_id=f"{rules.name[:32]}-{secrets.token_hex(4)}",
        genesis_time=format_time(now_ns),
        model_root=facts.model_root,
        validation_loss_hex=facts.validation_loss_hex,
        validators=tuple(
            GenesisValidator(owner, key, bond, share - bond + (0 if index else left))
            for index, (owner, key) in enumerate(validators)
        ),
        profile=rules,
        extra=facts.extra,
    )


def require_facts(genesis: Genesis, facts: GenesisFacts) -> None:
    """Raise StartupError unless the chain was made for the model that this node executes."""
    same = (
        genesis.model_root == facts.model_root
        and genesis.validation_loss_hex == facts.validation_loss_hex
        and genesis.extra == facts.extra
    )
    if not same:
        raise StartupError(
            f"the chain {genesis.chain_id} was made for another model, or other libraries; "
            "name the model's directory with --chain-model, or use another data folder"
        )


async def load_or_fetch_genesis(data_dir: Path, source: BlockSource, pinned: str = "") -> bytes:
    """The genesis to follow: the stored one, or on the first start the one that ``source`` has.

    ``pinned`` is its SHA-256 in hex, if the operator gave one. Raises StartupError when the genesis
    has another hash, or when the folder holds another chain. Raises ChainNotReached when a first
    start gets no answer, or an invalid one. Later starts do not need the answer.
    """
    stored = await trio.to_thread.run_sync(stored_genesis, data_dir)
    offered = await _fetch(source, patient=stored is None)
    if offered not in (None, stored) and not await trio.to_thread.run_sync(_is_genesis, offered):
        if stored is None:
            raise ChainNotReached(f"the genesis of {source.name} cannot be understood")
        # An invalid answer does not show that the source has another chain.
        log.warning("the genesis of %s cannot be understood; ours is used", source.name)
        offered = None
    genesis = stored if stored is not None else offered
    if genesis is None:
        raise ChainNotReached(f"no genesis from {source.name}: it does not answer")
    if pinned and hashlib.sha256(genesis).hexdigest() != pinned.lower():
        raise StartupError("the genesis is not the one that was given by its SHA-256")
    if offered is not None and offered != genesis:
        raise StartupError(
            f"{data_dir} holds the chain {_parse(data_dir, genesis).chain_id}, and {source.name} "
            "another one; use another data folder"
        )
    if stored is None:
        await trio.to_thread.run_sync(create_ledger, data_dir, genesis)
    return genesis


async def _fetch(source: BlockSource, *, patient: bool) -> bytes | None:
    """The source's genesis; None without an answer. Unless ``patient``, wait only briefly."""
    backoff = Backoff(0.2, 2.0)
    with trio.move_on_after(FIRST_ANSWER_S if patient else 2.0):
        while True:
            try:
                return await in_time(source.genesis)
            except (Unavailable, RateLimited):
                if not patient:
                    return None
                source.try_next()
                await trio.sleep(backoff.pause_s())
    return None


def _is_genesis(data: bytes) -> bool:
    try:
        parse_genesis(data)
    except Rejected:
        return False
    return True


def _parse(data_dir: Path, genesis: bytes) -> Genesis:
    try:
        return parse_genesis(genesis)
    except Rejected:
        raise damaged(data_dir) from None
