"""``meshnode worker``: do training work for the sponsor behind a gateway (interface 4.2).

A worker needs the model, a key and a data folder. It does not open a port.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
import threading
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from meshnode.client.errors import GatewayMisbehaves, GatewayRefuses, GatewayUnavailable
from meshnode.client.gateway import ANSWER_LIMITS, Gateway, clip
from meshnode.client.keys import KEY_FILE
from meshnode.client.session import CLIENT_FOLDER, DEFAULT_GATEWAY, GATEWAY_VARIABLE
from meshnode.client.transport import check_url, exchange
from meshnode.config import NETWORK_MODEL
from meshnode.datadir import DataDirLock, write_private
from meshnode.domain.chain.canonical import Json, encode, parse
from meshnode.domain.chain.errors import MalformedJson, Rejected
from meshnode.domain.chain.genesis import Genesis, parse_genesis
from meshnode.domain.errors import StartupError
from meshnode.domain.identity import NodeKey
from meshnode.domain.keyfile import KeyFileError, read_key_file
from meshnode.domain.work import OPERATIONS, WorkNetwork

if TYPE_CHECKING:
    from meshnode.services.work.execution import Execution

ANSWER_S = 40.0
"""Deadline of a request. Generous, because a gateway recomputes a result before it answers."""
FOLDER = "worker"
PINNED = "genesis.sha256"
PASSPHRASE_VARIABLE = "MESHNODE_KEY_PASSPHRASE"  # noqa: S105 - a variable's name


def add_worker_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``meshnode worker`` that the node itself does not have."""
    parser.add_argument(
        "--gateway",
        metavar="URL",
        help=f"node to get work from (default: {GATEWAY_VARIABLE}, or {DEFAULT_GATEWAY})",
    )
    parser.add_argument(
        "--key",
        default="",
        metavar="FILE",
        help="key file of the account that is paid (default DATA-DIR/client/key.json)",
    )
    parser.add_argument(
        "--stage",
        required=True,
        type=int,
        choices=range(len(OPERATIONS)),
        help=", ".join(f"{stage}: {name}" for stage, name in enumerate(OPERATIONS))
        + "; a task needs a worker of each stage",
    )
    parser.add_argument(
        "--tasks", type=_count, default=0, metavar="N", help="end after N tasks (default: run on)"
    )
    parser.add_argument(
        "--genesis-sha256",
        default="",
        metavar="HEX",
        help="work only for the chain with this genesis (default: the first one found)",
    )


def run_worker_command(
    options: argparse.Namespace, model: str, chain_model: str, data_dir: Path
) -> None:
    """Work until SIGTERM, SIGINT, or ``--tasks`` tasks are done. Raises StartupError.

    ``model`` and ``chain_model`` are settings: the chain's model is the second, or else the
    default model or the first, whichever the genesis names. The journal is kept in the ``worker``
    folder of ``data_dir``.
    """
    if model == NETWORK_MODEL:
        raise StartupError(
            "a worker cannot fetch a model from the network; give --model the folder of the model, "
            "or leave it out for the default model"
        )
    folder = data_dir / FOLDER
    # Imported here because they import torch: the other commands start faster without it.
    from meshnode.model.files import locate_model
    from meshnode.model.loading import DEFAULT_MODEL
    from meshnode.services.work.chain_model import chain_directory
    from meshnode.services.work.training_worker import StageJournal, TrainingWorker, run_worker

    lock = DataDirLock(folder / f"stage-{options.stage}")
    try:
        key = _read_key(Path(options.key or data_dir / CLIENT_FOLDER / KEY_FILE))
        url = options.gateway or os.environ.get(GATEWAY_VARIABLE) or DEFAULT_GATEWAY
        gateway = WorkGateway(check_url(url))
        genesis = _genesis(gateway, folder, options.genesis_sha256.lower())
        served = locate_model(model) if model else DEFAULT_MODEL
        chosen = locate_model(chain_model) if chain_model else None
        manifest = genesis.manifest
        directory = chain_directory(chosen, served, manifest, folder, otherwise=served)
        execution = _execution(gateway, directory, folder, genesis)
        network = WorkNetwork(genesis.profile.work_domain, genesis.chain_id)
        journal = StageJournal(folder, options.stage)
        worker = TrainingWorker(gateway, execution, key, options.stage, network, journal)
        stop = _stopped_by_signals()
        print(
            f"working on {OPERATIONS[options.stage]} for {genesis.chain_id} as {key.public_key}",
            flush=True,
        )
        run_worker(worker, stop, options.tasks, _say)
    finally:
        lock.release()


class WorkGateway:
    """A gateway that serves ``/work/*``. Every failure is a ClientError."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._native = Gateway(url, f"{url}/rpc")

    def file(self, path: str) -> bytes:
        """Fetch a published file."""
        return self._native.file(path)

    def query(self, path: str) -> dict[str, Any]:
        """Return the chain's answer to a native query."""
        value = self._native.query(path)
        if not isinstance(value, dict):
            raise GatewayMisbehaves(f"{path}: the value is not an object")
        return value

    def post(self, path: str, value: Json) -> dict[str, Any]:
        """Post a message and return the object in the answer."""
        answer = exchange(self._url + path, encode(value), ANSWER_S)
        try:
            reply = parse(answer.body, ANSWER_LIMITS)
        except MalformedJson:
            reply = None
        if answer.status == 200 and isinstance(reply, dict):
            return reply
        reason = clip(str(reply.get("error"))) if isinstance(reply, dict) else "no reason given"
        if answer.status == 429 or answer.status >= 500:
            raise GatewayUnavailable(f"{path}: HTTP {answer.status}: {reason}")
        raise GatewayRefuses(reason, answer.status)


def _count(text: str) -> int:
    count = int(text)
    if count < 0:
        raise argparse.ArgumentTypeError("must not be negative")
    return count


def _say(line: str) -> None:
    print(line, flush=True)


def _stopped_by_signals() -> threading.Event:
    stop = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    return stop


def _read_key(path: Path) -> NodeKey:
    try:
        return read_key_file(path.read_bytes(), os.environ.get(PASSPHRASE_VARIABLE) or None)
    except OSError as error:
        raise StartupError(f"cannot read the key file {path}: {error.strerror}") from None
    except KeyFileError as error:
        raise StartupError(f"{path}: {error}") from None


def _genesis(gateway: WorkGateway, folder: Path, expected: str) -> Genesis:
    """Fetch the gateway's genesis.

    Its hash must be ``expected``, if that is given, and that of this folder's first use.
    """
    data = gateway.file("/network/genesis.json")
    sha256 = hashlib.sha256(data).hexdigest()
    path = folder / PINNED
    known = path.read_bytes().decode("ascii", "replace").strip() if path.exists() else expected
    for wanted in (known, expected):
        if wanted not in ("", sha256):
            raise StartupError(f"the gateway's chain is not the one with the genesis {wanted}")
    try:
        genesis = parse_genesis(data)
    except Rejected:
        raise StartupError("the gateway's genesis is not valid") from None
    if not path.exists():
        write_private(path, f"{sha256}\n".encode())
    return genesis


def _execution(gateway: WorkGateway, directory: Path, folder: Path, genesis: Genesis) -> Execution:
    """Load the model under the chain's profile. Raises StartupError if it is not the chain's."""
    from meshnode.services.work.execution import load_execution

    manifest = genesis.manifest
    execution = load_execution(directory, folder, genesis.profile)
    if execution.dataset_sha256 != manifest.get("dataset_sha256"):
        # A chain that another release started trains on that release's text.
        data = gateway.file("/network/dataset.json")
        if hashlib.sha256(data).hexdigest() != manifest.get("dataset_sha256"):
            raise StartupError("the gateway's data set is not the one that the genesis names")
        execution = load_execution(directory, folder, genesis.profile, data)
    reason = execution.mismatch(manifest)
    if reason is not None:
        raise StartupError(f"cannot work for {genesis.chain_id}: {reason}")
    return execution
