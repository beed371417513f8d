"""Bodies of the native API (interface 2.2; decision 0076). Money is decimal strings of atoms.

Answers that show a part of the chain's state may have further members: the state belongs to the
network's profile.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from meshnode.http.fields import (
    Account,
    Atoms,
    BlockHash,
    Count,
    Digest,
    HexFloat,
    NodeId,
    Timestamp,
)
from meshnode.http.routes import IntegerParameter, TextParameter
from meshnode.http.schema import Limits, extensible

MAX_INT64 = 2**63 - 1

RECORDS = IntegerParameter("limit", default=50, low=1, high=100)
BLOCKS = IntegerParameter("limit", default=10, low=1, high=20)
VALIDATORS = IntegerParameter("limit", default=100, low=1, high=100)
BEFORE = IntegerParameter("before", MAX_INT64, low=0, high=MAX_INT64, shown_default=False)
AFTER = TextParameter("after", Annotated[str, Limits(pattern="^([0-9a-f]{64})?$")])
PUBLIC_KEY = TextParameter("public_key", Account, required=True)
REQUEST_ID = TextParameter("id", Digest, required=True)

Reason = Literal["ok", "unavailable", "catching_up", "stalled"]


@extensible
class ChainState(TypedDict):
    """The chain as this node sees it, and whether the node is ready."""

    chain_id: str
    genesis_sha256: Digest
    node_id: NodeId
    engine: Literal["solo", "follower", "cometbft"]
    height: Count
    earliest_block_height: Count
    ready: bool
    stalled: bool
    catching_up: bool
    reason: Reason
    trouble: str | None
    seconds_since_block: float
    latest_block_height: Count
    latest_block_hash: BlockHash
    latest_block_time: Timestamp | None
    bootstrap_peers: list[str]
    issued: Atoms
    burned: Atoms
    initial_supply: Atoms
    model_root: Digest
    serving_root: Digest
    round: Count
    observation: str


@extensible
class NotReady(TypedDict):
    """Why a node is not ready: its state, or the error that kept it from answering."""

    ready: NotRequired[bool]
    reason: NotRequired[Reason]
    error: NotRequired[str]


@extensible
class Manifest(TypedDict):
    """The genesis manifest."""

    profile: str


@extensible
class ModelFacts(TypedDict):
    """The network's model, and the losses of its latest adapters."""

    chain_id: str
    genesis_sha256: Digest
    height: Count
    round: Count
    model_name: str
    model_source: str
    model_revision: str
    parameter_count: Count
    base_parameter_count: Count
    trainable_parameter_count: Count
    model_root: Digest
    serving_root: Digest
    last_training_loss: float | None
    validation_loss: float | None
    serving_validation_loss: float | None
    metric: str


class AdapterCheckpoint(TypedDict):
    """The latest training adapter."""

    format: str
    chain_id: str
    genesis_sha256: Digest
    state_height: Count
    round: Count
    model_root: Digest
    weights: dict[str, Any]
    encoding: str


class TrainingUpdate(TypedDict):
    """One accepted update of the adapter."""

    round: Count
    height: Count
    block_hash: BlockHash
    time: Timestamp
    transaction_hash: BlockHash
    task_id: Digest
    model_root: Digest
    loss: float | None
    loss_hex: HexFloat
    workers: list[Account]


class TrainingUpdates(TypedDict):
    """A page of accepted updates, and the height that the index has reached."""

    chain_id: str
    records: list[TrainingUpdate]
    next_before: Count | None
    indexed_rounds: Count
    metric: str
    indexed_height: Count
    chain_height: Count
    error: str | None


class BlockTransaction(TypedDict):
    """A transaction in a block, and what became of it."""

    hash: BlockHash
    id: str | None
    kind: str | None
    sender: Account | None
    body: dict[str, Any] | None
    code: Count
    log: str


class BlockEntry(TypedDict):
    """One block."""

    height: Count
    hash: BlockHash
    time: Timestamp
    previous_hash: BlockHash
    app_hash: Digest
    app_state_height: Count
    transactions: list[BlockTransaction]


class Block(BlockEntry):
    """One block, and its chain."""

    chain_id: str


class Blocks(TypedDict):
    """A page of blocks, newest first."""

    chain_id: str
    chain_height: Count
    blocks: list[BlockEntry]
    next_before: Count | None


@extensible
class ChainAccount(TypedDict):
    """An account. One that was never used is empty."""

    public_key: Account
    balance: Atoms
    locked: Atoms
    total: Atoms
    nonce: Count


@extensible
class ChainValidator(TypedDict):
    """One validator."""

    public_key: Digest
    owner: Account
    power: Count
    bond: Atoms


@extensible
class ChainValidators(TypedDict):
    """A page of validators."""

    validators: list[ChainValidator]
    total: Count
    next_after: str | None


class InferenceTerms(TypedDict):
    """What a client must know to ask a question through the chain."""

    chain_id: str
    genesis_sha256: Digest
    model_root: Digest
    model_name: str
    provider: Account | None
    provider_online: bool
    provider_connected: bool
    network_ready: bool
    seconds_since_block: float
    fee_atoms: Atoms
    price_per_max_token_atoms: Atoms
    max_tokens: Count
    request_lifetime_blocks: Count
    pending_requests: Count
    public_prompts: bool
    verification: str
    scope: str


@extensible
class InferenceJob(TypedDict):
    """A request for an answer on the chain, and what became of it."""

    id: Digest
    status: str
    owner: Account
    provider: Account
    model_root: Digest
    price: NotRequired[Atoms]
    provider_paid: NotRequired[Atoms]
    refunded: NotRequired[Atoms]


@extensible
class Genesis(TypedDict):
    """The genesis document, byte for byte."""

    chain_id: str
    app_hash: str


@extensible
class Dataset(TypedDict):
    """The tokenised data set that the genesis names, byte for byte."""


RpcMethod = Literal[
    "status",
    "block",
    "commit",
    "validators",
    "abci_query",
    "broadcast_tx_sync",
    "broadcast_tx_commit",
]
RpcId = Annotated[int | str | None, Limits(max_length=128)]


class RpcRequest(TypedDict):
    """One permitted call (interface 4.2 rules 1 to 3)."""

    jsonrpc: NotRequired[Literal["2.0"]]
    id: NotRequired[RpcId]
    method: RpcMethod
    params: NotRequired[dict[str, Any]]


class RpcResult(TypedDict):
    """The result of a call, in CometBFT 0.38's shape."""

    jsonrpc: Literal["2.0"]
    id: RpcId
    result: dict[str, Any]


@extensible
class WorkStatus(TypedDict):
    """The sponsor of training tasks: its account, and what it has left to hand out."""

    chain_id: str
    sponsor: Account | None


class WorkAssignment(TypedDict):
    """What a worker is to compute, or nothing."""

    assignment: dict[str, Any] | None


class WorkAccepted(TypedDict):
    """The answer to a result that was accepted."""

    accepted_for_submission: bool


class WorkEnvelope(TypedDict):
    """An envelope that a worker signed (native network 4)."""

    body: dict[str, Any]
    public_key: Account
    signature: Annotated[str, Limits(pattern="^[0-9a-f]+$")]
