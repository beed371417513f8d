"""The node's keys and the operator's token file (interface 5, which does not show them).

Terms: the *node's key* is ``key.json``; each token's *account key* is ``accounts/<token id>.json``.
With a passphrase the files are *sealed* (:mod:`meshnode.domain.keyfile`, decision 0083).

Invariants: every file has mode 0600 and appears whole or not at all; concurrent callers make a key
only once; a key's file is never removed, and is overwritten only by its own sealed form; a damaged
file is refused; no seed or passphrase appears in an exception or a log line.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

from meshnode.datadir import sync_folder, write_private
from meshnode.domain.errors import StartupError
from meshnode.domain.identity import NodeKey, key_from_seed
from meshnode.domain.keyfile import (
    COST,
    NONCE_BYTES,
    SALT_BYTES,
    KeyFileDamaged,
    PassphraseNeeded,
    WrongPassphrase,
    key_file_names,
    plain_key_file,
    read_key_file,
    sealed_key_file,
)

KEY_FILE = "key.json"
ACCOUNTS_FOLDER = "accounts"
TOKEN_FILE = "operator.token"  # noqa: S105 - a file name
TOKEN_BYTES = 32
PASSPHRASE_VARIABLE = "MESHNODE_KEY_PASSPHRASE"  # noqa: S105 - a variable's name

_TOKEN = re.compile(r"mn_[A-Za-z0-9_-]{43}")
_TOKEN_ID = re.compile(r"[0-9a-f]{1,64}")


@dataclass(frozen=True, slots=True)
class Account:
    """The account of a key. The seed stays in its file until something is signed."""

    token_id: str
    public_key: str


class Keystore:
    """The keys of a data folder. Synchronous: small local files."""

    def __init__(self, data_dir: Path, passphrase: str = "", cost: int = COST) -> None:
        """Read the node's key, or make one. ``cost`` is scrypt's, for new files.

        With a ``passphrase``, new files are sealed, and existing plain files are sealed now.
        Raises StartupError, in one line, for a file that cannot be trusted, and for a passphrase
        that is wrong or missing.
        """
        self._folder = data_dir / ACCOUNTS_FOLDER
        self._passphrase = passphrase
        self._cost = cost
        # One salt for the folder, so that a thousand accounts cost one derivation. That is safe as
        # long as no nonce repeats under the derived key.
        self._salt = b""
        self._accounts: dict[str, Account] = {}
        self._opened: dict[str, NodeKey] = {}
        path = data_dir / KEY_FILE
        self.node_key = self._open(path, self._read_or_create(path))
        if passphrase:
            self._seal_all()

    def account(self, token_id: str) -> Account:
        """A token's account. Its key is made if there is none yet."""
        if token_id not in self._accounts:
            try:
                self._folder.mkdir(mode=0o700, exist_ok=True)
            except OSError as error:
                raise StartupError(f"cannot use {self._folder}: {error.strerror}") from None
            path = self._path(token_id)
            self._remember(token_id, path, self._read_or_create(path))
        return self._accounts[token_id]

    def accounts(self) -> list[Account]:
        """All accounts on file, by token id, with those of revoked and forgotten tokens."""
        accounts, refusal = self._readable_accounts()
        if refusal is not None:
            raise refusal
        return accounts

    def signer(self, public_key: str) -> NodeKey:
        """The key that signs for an account. Opening a file for the first time may take a second.

        Raises StartupError when there is no such key, or its file cannot be opened.
        """
        if public_key == self.node_key.public_key:
            return self.node_key
        if public_key not in self._opened:
            accounts, refusal = self._readable_accounts()
            named = [one for one in accounts if one.public_key == public_key]
            if not named:
                # The file that cannot be read may be the one of this account.
                raise refusal or StartupError(f"there is no key for the account {public_key}")
            path = self._path(named[0].token_id)
            self._opened[public_key] = self._open(path, _read(path))
        return self._opened[public_key]

    def _readable_accounts(self) -> tuple[list[Account], StartupError | None]:
        """The accounts whose files can be read, and the error of the first unreadable file."""
        refusal = None
        try:
            found = sorted(path.stem for path in self._folder.glob("*.json"))
        except OSError as error:
            raise StartupError(f"cannot read {self._folder}: {error.strerror}") from None
        for token_id in found:
            if _TOKEN_ID.fullmatch(token_id) and token_id not in self._accounts:
                path = self._path(token_id)
                try:
                    self._remember(token_id, path, _read(path))
                except StartupError as error:
                    refusal = refusal or error
        known = [self._accounts[token_id] for token_id in found if token_id in self._accounts]
        return known, refusal

    def _seal_all(self) -> None:
        """Seal the plain files that were made before the operator set a passphrase."""
        for account in self.accounts():
            path = self._path(account.token_id)
            data = _read(path)
            *_, sealed = key_file_names(data)
            if not sealed:
                self._opened[account.public_key] = self._open(path, data)

    def _remember(self, token_id: str, path: Path, data: bytes) -> None:
        try:
            _, public_key, _ = key_file_names(data)
        except KeyFileDamaged:
            raise _damaged(path) from None
        self._accounts[token_id] = Account(token_id, public_key)

    def _path(self, token_id: str) -> Path:
        if not _TOKEN_ID.fullmatch(token_id):
            raise ValueError("a token id is hexadecimal")
        return self._folder / f"{token_id}.json"

    def _open(self, path: Path, data: bytes) -> NodeKey:
        # The errors have no cause and no detail, which could contain the seed.
        try:
            key = read_key_file(data, self._passphrase or None)
            *_, sealed = key_file_names(data)
        except KeyFileDamaged:
            raise _damaged(path) from None
        except PassphraseNeeded:
            message = f"the key file {path} is sealed: set {PASSPHRASE_VARIABLE}"
            raise StartupError(message) from None
        except WrongPassphrase:
            message = f"{PASSPHRASE_VARIABLE} does not open the key file {path}"
            raise StartupError(message) from None
        if sealed:
            self._salt = self._salt or bytes.fromhex(json.loads(data)["sealed"]["salt"])
        elif self._passphrase:
            _write(path, self._file_of(key))
        return key

    def _read_or_create(self, path: Path) -> bytes:
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return self._create(path)
        except OSError as error:
            raise StartupError(f"cannot read the key file {path}: {error.strerror}") from None

    def _create(self, path: Path) -> bytes:
        """Make a key file, unless another process was first. Returns the file's bytes."""
        data = self._file_of(key_from_seed(secrets.token_hex(32)))
        draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        try:
            write_private(draft, data)
            try:
                # A link, unlike a rename, does not replace the key that a racing process made.
                os.link(draft, path)
            except FileExistsError:
                return path.read_bytes()
            finally:
                draft.unlink()
            sync_folder(path.parent)
        except OSError as error:
            raise StartupError(f"cannot write {path}: {error.strerror}") from None
        return data

    def _file_of(self, key: NodeKey) -> bytes:
        if not self._passphrase:
            return plain_key_file(key)
        self._salt = self._salt or secrets.token_bytes(SALT_BYTES)
        nonce = secrets.token_bytes(NONCE_BYTES)
        return sealed_key_file(key, self._passphrase, self._salt, nonce, cost=self._cost)


def load_or_create_token(data_dir: Path) -> tuple[str, bool]:
    """Read the operator's bearer token, or make one. Returns it, and whether it is new."""
    path = data_dir / TOKEN_FILE
    if not path.exists():
        return replace_token(data_dir), True
    return read_token(path), False


def replace_token(data_dir: Path) -> str:
    """Make another bearer token for the operator, and write it in place of the one before."""
    token = "mn_" + secrets.token_urlsafe(TOKEN_BYTES)
    _write(data_dir / TOKEN_FILE, token.encode() + b"\n")
    return token


def read_token(path: Path) -> str:
    """The operator's bearer token in a file. Raises StartupError."""
    try:
        token = path.read_text("ascii").strip()
    except OSError as error:
        raise StartupError(f"cannot read the token file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        token = ""
    if not _TOKEN.fullmatch(token):
        raise StartupError(f"the token file {path} is damaged; remove it to have a new one made")
    return token


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise StartupError(f"cannot read the key file {path}: {error.strerror}") from None


def _damaged(path: Path) -> StartupError:
    return StartupError(f"the key file {path} is damaged; restore it, or move it away")


def _write(path: Path, data: bytes) -> None:
    try:
        write_private(path, data)
    except OSError as error:
        raise StartupError(f"cannot write {path}: {error.strerror}") from None
