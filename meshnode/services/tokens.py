"""The tokens that this node accepts, kept in a private file (interface 5).

Several processes share the file in the data folder: the running node reads it, and the
``meshnode token`` command writes it. A writer holds a lock and replaces the file in one step; a
reader looks at the file's identity before each use, so a revocation is in force with the next
request. Everything here is small local file work, so nothing is ``async``.

Invariants: the file has digests of the secrets and never a secret; it is readable by its owner
only; a damaged file is never overwritten.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import secrets
import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from meshnode.datadir import write_private
from meshnode.domain.checksums import dump_checked, read_checked
from meshnode.domain.errors import InvalidRequest, StartupError
from meshnode.domain.tokens import (
    CUSTOMER,
    ID_BYTES,
    SECRET_BYTES,
    Scope,
    TokenRecord,
    digest,
    find_live,
    new_token,
)
from meshnode.services.keystore import read_token

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

log = logging.getLogger(__name__)

TOKENS_FILE = "tokens.json"
LOCK_FILE = "tokens.lock"
FORMAT = "meshnode-tokens-v2"
FORMATS = (FORMAT, "meshnode-tokens-v1")
"""In the former format tokens had no scopes."""

MAX_LIVE = 1000
"""The most tokens at a time; each request is compared with all of them."""
MAX_DEAD = 1000
"""The most expired and revoked tokens that :meth:`TokenStore.issue` leaves, dropping the oldest."""

OPERATOR = "operator"
"""Id and name of the operator's token: no record on file has either."""

_Identity = tuple[int, int, int]
_Records = list[TokenRecord]


class TokenStore:
    """Issues, lists, revokes and authenticates tokens."""

    def __init__(
        self,
        data_dir: Path,
        operator_token: str = "",
        clock: Callable[[], float] = time.time,
        *,
        operator_file: Path | None = None,
    ) -> None:
        """Read the file in ``data_dir``, which must exist. StartupError when it is damaged.

        ``operator_token`` is accepted besides the file's tokens, and never written. It has all
        scopes. If it is kept in ``operator_file``, another one there replaces it. ``clock`` gives
        seconds since the epoch.
        """
        self._path = data_dir / TOKENS_FILE
        self._lock_path = data_dir / LOCK_FILE
        self._clock = clock
        self._operator = [self._operators(operator_token)] if operator_token else []
        self._operator_file = operator_file
        self._operator_identity = None if operator_file is None else _look(operator_file)
        self._identity = _look(self._path)
        self._records = self._read()

    def authenticate(self, secret: str) -> TokenRecord:
        """The record of a secret that a client sent. Raises :class:`Unauthorized`."""
        self._refresh()
        return find_live((*self._operator, *self._records), secret, self._clock())

    def list(self) -> _Records:
        """The records on file, oldest first, expired and revoked ones included."""
        self._refresh()
        return list(self._records)

    def issue(
        self, name: str, ttl_s: float | None = None, scopes: tuple[Scope, ...] = CUSTOMER
    ) -> tuple[TokenRecord, str]:
        """Make a token and store its record; the secret is returned and kept nowhere.

        Raises :class:`InvalidRequest` if a live token has this name or there are too many live
        tokens, and StartupError when the file cannot be read or written.
        """
        with self._writing() as records:
            now = self._clock()
            live = [record for record in records if record.live(now)]
            if name == OPERATOR or any(record.name == name for record in live):
                raise InvalidRequest("name", "is in use by another token")
            if len(live) >= MAX_LIVE:
                raise InvalidRequest("name", f"there are {MAX_LIVE} tokens already; revoke some")
            random = secrets.token_bytes(SECRET_BYTES + ID_BYTES)
            record, secret = new_token(name, random, now, ttl_s, scopes)
            dead = [record for record in records if not record.live(now)]
            forgotten = set(dead[: max(0, len(dead) - MAX_DEAD)])
            records[:] = [kept for kept in records if kept not in forgotten]
            records.append(record)
        return record, secret

    def revoke(self, id_or_name: str) -> TokenRecord:
        """Stop accepting the live token of that id or name; InvalidRequest when there is none."""
        with self._writing() as records:
            now = self._clock()
            for index, record in enumerate(records):
                if id_or_name in (record.id, record.name) and record.live(now):
                    records[index] = revoked = replace(record, revoked_at=int(now))
                    return revoked
        raise InvalidRequest("token", "no live token has this id or name")

    @contextlib.contextmanager
    def _writing(self) -> Iterator[_Records]:
        # Two commands at once must not lose each other's token, so the read is inside the lock too.
        with self._locked():
            records = self._read()
            before = list(records)
            yield records
            if records != before:
                tokens = [asdict(record) for record in records]
                document = {"format": FORMAT, "tokens": tokens}
                write_private(self._path, dump_checked(document))
            self._identity = _look(self._path)
            self._records = records

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield
            finally:
                os.close(lock)
        except OSError as error:
            raise StartupError(f"cannot write {self._path}: {error.strerror}") from None

    def _operators(self, secret: str) -> TokenRecord:
        return TokenRecord(
            OPERATOR, OPERATOR, digest(secret), int(self._clock()), scopes=tuple(Scope)
        )

    def _refresh_operator(self) -> None:
        """Take over a token that ``meshnode token rotate`` has written."""
        path = self._operator_file
        identity = self._operator_identity if path is None else _look(path)
        if path is None or identity == self._operator_identity or identity is None:
            return
        self._operator_identity = identity
        try:
            self._operator = [self._operators(read_token(path))]
        except StartupError:
            log.exception("the operator's token cannot be read; the one before stays in force")
        else:
            log.info("the operator's token was changed")

    def _refresh(self) -> None:
        self._refresh_operator()
        identity = _look(self._path)
        if identity == self._identity:
            return
        self._identity = identity
        try:
            self._records = self._read()
        except StartupError:
            # Clients keep their access while the file is damaged; each bad version is logged once.
            log.exception("the token file cannot be read; the tokens known before stay in force")

    def _read(self) -> _Records:
        try:
            document = read_checked(self._path.read_bytes())
            if document["format"] not in FORMATS:
                raise ValueError("unknown format")
            return [_record(entry) for entry in document["tokens"]]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StartupError(f"cannot read {self._path}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError):
            raise StartupError(f"{self._path} is damaged; restore it, or move it away") from None


def _look(path: Path) -> _Identity | None:
    """A file's identity, which changes whenever it is replaced; None if it cannot be seen."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        log.warning("cannot look at %s: %s", path.name, error.strerror)
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _record(entry: dict[str, object]) -> TokenRecord:
    scopes = entry.get("scopes", CUSTOMER)
    if not isinstance(scopes, list | tuple):
        raise TypeError("a token's scopes have the wrong type")
    known = tuple(Scope(scope) for scope in scopes)
    record = TokenRecord(**{**entry, "scopes": known})  # type: ignore[arg-type]  # checked below
    texts = (record.id, record.name, record.digest)
    times = (record.created_at, record.expires_at or 0, record.revoked_at or 0)
    if not all(type(text) is str for text in texts) or not all(type(at) is int for at in times):
        raise TypeError("a token's field has the wrong type")
    return record
