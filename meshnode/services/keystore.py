"""The node's key file and the operator's token file.

Both are made at the first start, with mode 0600. A damaged key file is refused and never
overwritten: the key is the node's identity and, later, its money.
"""

from __future__ import annotations

import json
import re
import secrets
from pathlib import Path

from meshnode.datadir import write_private
from meshnode.domain.errors import StartupError
from meshnode.domain.identity import NodeKey, key_from_seed

KEY_FILE = "key.json"
KEY_FORMAT = "meshnode-key-v1"
TOKEN_FILE = "operator.token"  # noqa: S105 - a file name
TOKEN_BYTES = 32
_TOKEN = re.compile(r"mn_[A-Za-z0-9_-]{43}")


def load_or_create_key(data_dir: Path) -> NodeKey:
    """Read the node's key, or make one. StartupError for a file that cannot be trusted."""
    path = data_dir / KEY_FILE
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        key = key_from_seed(secrets.token_hex(32))
        document = {"format": KEY_FORMAT, "seed": key.seed, "public_key": key.public_key}
        _write(path, json.dumps(document).encode())
        return key
    except OSError as error:
        raise StartupError(f"cannot read the key file {path}: {error.strerror}") from None
    try:
        document = json.loads(text)
        key = key_from_seed(document["seed"])
        matches = document["format"] == KEY_FORMAT and document["public_key"] == key.public_key
    except (ValueError, TypeError, KeyError):
        matches = False
    if not matches:
        # `from None` above and no detail here: an exception's text could carry the seed.
        raise StartupError(f"the key file {path} is damaged; restore it, or move it away") from None
    return key


def load_or_create_token(data_dir: Path) -> tuple[str, bool]:
    """Read the operator's bearer token, or make one; True when it was made now."""
    path = data_dir / TOKEN_FILE
    try:
        token = path.read_text("ascii").strip()
    except FileNotFoundError:
        token = "mn_" + secrets.token_urlsafe(TOKEN_BYTES)
        _write(path, token.encode() + b"\n")
        return token, True
    except OSError as error:
        raise StartupError(f"cannot read the token file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        token = ""
    if not _TOKEN.fullmatch(token):
        raise StartupError(f"the token file {path} is damaged; remove it to have a new one made")
    return token, False


def _write(path: Path, data: bytes) -> None:
    try:
        write_private(path, data)
    except OSError as error:
        raise StartupError(f"cannot write {path}: {error.strerror}") from None
