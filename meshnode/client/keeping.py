"""The commands for local data: keys, the outbox, remembered networks, descriptors."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from meshnode.client.descriptor import export_descriptor
from meshnode.client.errors import DONE, UNKNOWN, ClientError, Misused
from meshnode.client.follow import ask, follow, waiting_for_answer
from meshnode.client.gateway import clip
from meshnode.client.keys import import_key, new_key, public_key_of, save_key
from meshnode.client.outbox import OPEN, Entry
from meshnode.client.payments import send
from meshnode.client.reading import entry_value
from meshnode.client.session import Report, Session
from meshnode.client.transport import check_url
from meshnode.domain.account_address import address_of
from meshnode.domain.chain.canonical import Json
from meshnode.domain.identity import NodeKey
from meshnode.domain.keyfile import DEFAULT_FORMAT

SHOWN = 50
"""Entries of the outbox that are listed."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def key_new(session: Session) -> Report:
    """Generate a key. An existing one is never replaced."""
    key = new_key()
    _save(session, key, session.key_file)
    return _key_report(session, key.public_key, "keep a copy of the file: it is the account")


def key_import(session: Session, source: str) -> Report:
    """Import a key from a backup."""
    key = import_key(Path(source))
    _save(session, key, session.key_file)
    return _key_report(session, key.public_key, "imported")


def key_show(session: Session, *, secret: bool) -> Report:
    """Show the public key, and the seed only with ``secret``."""
    path = session.key_file
    if not secret:
        return _key_report(session, public_key_of(path), "")
    key = session.key
    report = _key_report(session, key.public_key, f"seed {key.seed}")
    text = f"{report.text}\nwhoever knows the seed can spend everything"
    return Report(text, {**_key_value(key.public_key, path), "seed": key.seed})


def key_export(session: Session, target: str) -> Report:
    """Export the key for another program, unencrypted unless ``--passphrase`` is given."""
    _save(session, session.key, Path(target))
    note = f"copied to {target}: whoever has that file can spend everything"
    return _key_report(session, session.key.public_key, note)


def outbox_list(session: Session) -> Report:
    """List the signed transactions, newest first, with their outcomes."""
    entries = session.outbox.recent(SHOWN)
    lines = [_line(entry) for entry in entries] or ["nothing was signed here"]
    return Report("\n".join(lines), [entry_value(entry) for entry in entries])


def outbox_resume(session: Session, which: str | None, wait_seconds: float) -> Report:
    """Query the outcome of open entries, and send the same bytes again where that can help."""
    chosen = [session.outbox.find(which)] if which else session.outbox.recent(SHOWN)
    chosen = [one for one in chosen if which or one.state in OPEN or waiting_for_answer(one)]
    done: list[Entry] = []
    elsewhere = [one for one in chosen if one.identity != session.identity]
    for entry in chosen:
        if entry in elsewhere:
            continue
        try:
            now = ask(session.gateway, session.outbox, entry)
            if now.state in OPEN:
                now = send(session.payer_without_key(), now, maybe_sent=True)
            done.append(follow(session.gateway, session.outbox, now, wait_seconds))
        except ClientError as error:
            session.say(f"{entry.summary}: {error}")
            done.append(session.outbox.get(entry.application_id) or entry)
    unclear = [one for one in done if one.state in OPEN or waiting_for_answer(one)]
    lines = [_line(entry) for entry in done] or ["nothing is open"]
    lines += [f"{one.summary}: signed for chain {one.chain_id}, not asked" for one in elsewhere]
    values: list[Json] = [entry_value(entry) for entry in done]
    return Report("\n".join(lines), values, status=UNKNOWN if unclear or elsewhere else DONE)


def outbox_forget(session: Session, which: str) -> Report:
    """Stop following an entry. The user accepts that it may still be carried out."""
    entry = session.outbox.find(which)
    if entry.state not in OPEN | {"refused"}:
        raise Misused(f"{entry.summary} is {entry.state}: there is nothing to forget")
    entry = session.outbox.move(entry, "forgotten", note="by the user's wish")
    text = (
        f"{_line(entry)}\nIts bytes may still be carried out by the network, in addition to "
        "whatever is signed from now on."
    )
    return Report(text, entry_value(entry))


def network_export(session: Session, out: str, url: str | None, name: str | None) -> Report:
    """Write a descriptor of the gateway's network."""
    base = check_url(url) if url else session.gateway_url
    descriptor = export_descriptor(session.gateway, base, name)
    session.write_public(Path(out), descriptor)
    lines = [f"{out}: chain {clip(str(descriptor['chain_id']))} at {base}"]
    parts = urlsplit(base)
    if parts.scheme == "http" and parts.hostname not in LOOPBACK:
        lines.append("clients of the public network take plain http on this machine only")
    return Report("\n".join(lines), descriptor)


def network_forget(session: Session, url: str) -> Report:
    """Forget which chain a gateway was on."""
    base = check_url(url)
    if not session.pins.forget(base):
        raise Misused(f"{base} is not remembered")
    return Report(f"{base} is forgotten; its next answer is believed", {"forgotten": base})


def _save(session: Session, key: NodeKey, path: Path) -> None:
    options = session.options
    key_format = options.format or DEFAULT_FORMAT
    # With a descriptor, the file gets its network's format, so that its clients can read it.
    if not options.format and session.descriptor is not None:
        key_format = session.descriptor.profile.get("key_format", key_format)
    save_key(path, key, seal=options.passphrase, key_format=key_format)


def _key_report(session: Session, public_key: str, note: str) -> Report:
    value = _key_value(public_key, session.key_file)
    lines = [
        public_key,
        f"address {value['address']} (the same account, with a checksum; give this to others)",
        f"key file {value['file']}",
    ]
    return Report("\n".join([*lines, note] if note else lines), value)


def _key_value(public_key: str, path: Path) -> dict[str, Json]:
    return {"public_key": public_key, "address": address_of(public_key), "file": str(path)}


def _line(entry: Entry) -> str:
    signed = datetime.fromtimestamp(entry.signed_at, UTC).strftime("%Y-%m-%d %H:%M:%S")
    state = entry.state if entry.height is None else f"{entry.state} in block {entry.height}"
    note = f": {clip(entry.note)}" if entry.note else ""
    return (
        f"{entry.application_id[:16]}  {signed} UTC  nonce {entry.nonce:<5} {entry.summary}: "
        f"{state}{note}"
    )
