"""Checks for process tests of the chain: money in a ledger file, modes of files, secrets."""

from __future__ import annotations

import json
import stat
import subprocess
from pathlib import Path
from typing import Any

from meshnode.domain.chain.codec import decode_record
from meshnode.domain.chain.records import Supply
from meshnode.services.keystore import Keystore
from meshnode.services.ledger.database import LedgerReader
from spec_tests.processes.nodes import Node, run


def healthz(node: Node) -> tuple[int, dict[str, Any]]:
    answer = node.ask("GET", "/healthz", token=None)
    return answer.status, answer.json


def client(home: Path, node: Node, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a user of the chain whose data folder is ``home``."""
    gateway = f"http://127.0.0.1:{node.port}"
    return run(*arguments, "--gateway", gateway, "--data-dir", str(home))


def require_conserved(data_dir: Path) -> None:
    """Check that a stopped node's ledger accounts for every atom, and has no negative amount."""
    reader = LedgerReader(data_dir)
    try:
        entries = [one for _, bucket in reader.buckets() for one in bucket.items()]
    finally:
        reader.close()
    records = [decode_record(key, value) for key, value in entries]
    (supply,) = (record for record in records if isinstance(record, Supply))
    held = [record.money for record in records if not isinstance(record, Supply)]
    assert all(money >= 0 for money in held)
    assert sum(held) + supply.burned == supply.initial + supply.issued


def require_private(folder: Path) -> None:
    """Check that only the owner has access to the files and folders that a node wrote."""
    for path in (folder, *folder.rglob("*")):
        wanted = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == wanted, path


def secrets_of(data_dir: Path, passphrase: str = "") -> dict[str, set[str]]:
    """The secret seeds in a node's folder, each with the names of the files that may hold it."""
    keys = Keystore(data_dir, passphrase)
    validator = json.loads((data_dir / "validator.json").read_bytes())
    found = {keys.node_key.seed: {"key.json"}, validator["seed"]: {"validator.json"}}
    for account in keys.accounts():
        seed = keys.signer(account.public_key).seed
        found[seed] = {path.name for path in data_dir.rglob(f"*{account.token_id}*")}
    return found


def require_kept(secrets: dict[str, set[str]], folders: list[Path], said: str) -> None:
    """Check that no secret is in ``said``, and that each is only in files that may hold it."""
    for secret, homes in secrets.items():
        assert secret not in said
        for folder in folders:
            for path in (path for path in folder.rglob("*") if path.is_file()):
                if path.name not in homes:
                    content = path.read_bytes()
                    assert secret.encode() not in content, path
                    assert bytes.fromhex(secret) not in content, path
