"""The resources of one command: the gateway of the chosen network, the key, the outbox."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

from meshnode.client.answers import Identity
from meshnode.client.descriptor import (
    Descriptor,
    fetch_genesis,
    genesis_strings,
    load_descriptor,
)
from meshnode.client.errors import Misused
from meshnode.client.gateway import Gateway, Patience
from meshnode.client.keys import KEY_FILE, load_key
from meshnode.client.outbox import Outbox
from meshnode.client.payments import Payer
from meshnode.client.pins import Pins
from meshnode.client.transport import check_url
from meshnode.datadir import make_private, write_private
from meshnode.domain.chain.canonical import Json, encode
from meshnode.domain.identity import NodeKey

DEFAULT_GATEWAY: Final = "http://127.0.0.1:8000"
GATEWAY_VARIABLE: Final = "MESHNODE_GATEWAY"
CLIENT_FOLDER: Final = "client"
"""In the data folder, beside a node's own files: key, outbox, remembered networks."""


@dataclass(frozen=True, slots=True)
class Report:
    """A command's outcome: ``text`` for people, ``value`` for scripts, ``status`` to exit with."""

    text: str
    value: Json
    status: int = 0


@dataclass
class Session:
    """One command's resources, each opened when it is first needed."""

    options: Namespace
    data_dir: Path
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    patience: Patience = field(default_factory=Patience)

    @property
    def folder(self) -> Path:
        """The folder of the client's files, created if missing."""
        folder = self.data_dir / CLIENT_FOLDER
        try:
            make_private(folder)
        except OSError as error:
            raise Misused(f"cannot use the folder {folder}: {error.strerror}") from None
        return folder

    @property
    def key_file(self) -> Path:
        """The key file that ``--key`` or MESHNODE_KEY names, or the client's own."""
        given = self._option("key", "MESHNODE_KEY")
        return Path(given) if given else self.data_dir / CLIENT_FOLDER / KEY_FILE

    @cached_property
    def key(self) -> NodeKey:
        """The user's key."""
        return load_key(self.key_file)

    @cached_property
    def descriptor(self) -> Descriptor | None:
        """The descriptor that ``--network`` or MESHNODE_NETWORK names."""
        given = self._option("network", "MESHNODE_NETWORK")
        return load_descriptor(Path(given)) if given else None

    @cached_property
    def pins(self) -> Pins:
        """The remembered network of each gateway, for use without a descriptor."""
        return Pins(self.folder)

    @cached_property
    def outbox(self) -> Outbox:
        """The transactions that were signed here."""
        return Outbox(self.folder)

    @property
    def gateway_url(self) -> str:
        """``--gateway``, else the descriptor's, MESHNODE_GATEWAY, or the node on this machine."""
        flag = getattr(self.options, "gateway", None)
        if flag:
            return check_url(flag)
        if self.descriptor is not None:
            return self.descriptor.api
        return check_url(self.environ.get(GATEWAY_VARIABLE) or DEFAULT_GATEWAY)

    @cached_property
    def gateway(self) -> Gateway:
        """The gateway, pinned to one network."""
        url = self.gateway_url
        if self.descriptor is not None:
            own = url == self.descriptor.api
            rpc = self.descriptor.rpc if own else f"{url}/rpc"
            return Gateway(url, rpc, self.descriptor.identity, self.patience)
        known = self.pins.get(url)
        if known is not None:
            return Gateway(url, f"{url}/rpc", known, self.patience)
        identity = Gateway(url, f"{url}/rpc", None, self.patience).network().identity
        self.pins.put(url, identity)
        self.say(
            f"first contact with {url}: chain {identity.chain_id}, genesis "
            f"{identity.genesis_sha256}; from now on it must stay that one"
        )
        return Gateway(url, f"{url}/rpc", identity, self.patience)

    @property
    def identity(self) -> Identity:
        """The network that the user chose, or the gateway's network at first contact."""
        identity = self.gateway.identity
        assert identity is not None  # noqa: S101 - see gateway
        return identity

    @property
    def payer(self) -> Payer:
        """The payer that signs with the user's key."""
        return Payer(self.key, self.gateway, self.outbox, self.say)

    def payer_without_key(self) -> Payer:
        """A payer that can send earlier transactions again but cannot sign new ones."""
        return Payer(None, self.gateway, self.outbox, self.say)

    def profile_string(self, name: str) -> str:
        """One of the network's strings, from the descriptor or from its genesis."""
        if self.descriptor is not None and name in self.descriptor.profile:
            return self.descriptor.profile[name]
        document = fetch_genesis(self.gateway, self.identity.genesis_sha256)
        strings = genesis_strings(document)
        if name not in strings:
            raise Misused(
                f"neither descriptor nor genesis names this network's {name}: add it to the "
                "descriptor, as a member of network_profile"
            )
        return strings[name]

    def say(self, text: str) -> None:
        """Print progress for people, on standard error so that the output can be piped."""
        if not getattr(self.options, "json", False):
            print(text, file=sys.stderr, flush=True)

    def write_public(self, path: Path, value: Json) -> None:
        """Write a file that others may read, whole or not at all."""
        try:
            write_private(path, encode(value) + b"\n")
            path.chmod(0o644)
        except OSError as error:
            raise Misused(f"cannot write {path}: {error.strerror}") from None

    def close(self) -> None:
        """Close the resources that were opened."""
        if "outbox" in self.__dict__:
            self.outbox.close()

    def _option(self, name: str, variable: str) -> str | None:
        return getattr(self.options, name, None) or self.environ.get(variable) or None
