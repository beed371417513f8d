"""``meshnode token``: issue, list and revoke bearer tokens, beside a running node or without one.

The node notices a change of the token file with its next request (decisions/0005).
"""

from __future__ import annotations

import argparse
import time
from datetime import UTC, datetime
from pathlib import Path

from meshnode.domain.errors import StartupError
from meshnode.domain.tokens import TokenRecord
from meshnode.services.tokens import TokenStore

SECONDS_A_DAY = 86_400


def run_token_command(options: argparse.Namespace, data_dir: Path) -> None:
    """Carry out one action and print its outcome. InvalidRequest or StartupError says why not."""
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StartupError(f"cannot use the data folder {data_dir}: {error.strerror}") from None
    store = TokenStore(data_dir)
    if options.action == "issue":
        record, secret = store.issue(options.name, options.days * SECONDS_A_DAY)
        print(f"{_describe(record)}\nshown this once: {secret}")
    elif options.action == "revoke":
        print(_describe(store.revoke(options.which)))
    else:
        records = store.list()
        for record in records:
            print(_describe(record))
        if not records:
            print("no tokens have been issued; the operator's own is not listed")


def _describe(record: TokenRecord) -> str:
    if record.revoked_at is not None:
        state = f"revoked {_date(record.revoked_at)}"
    elif record.expires_at is None:
        state = "does not expire"
    elif record.live(time.time()):
        state = f"expires {_date(record.expires_at)}"
    else:
        state = f"expired {_date(record.expires_at)}"
    return f"{record.id}  {record.name:20}  issued {_date(record.created_at)}  {state}"


def _date(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
