"""Why the ledger refuses something: one exception for each rule (interface 4.2 and 7.2).

:class:`Rejected` covers transactions, blocks and queries that can be refused without harm. Each
class's docstring is its rule and also its message: shown to clients, never part of what is hashed.
Where the public network has a wording for the same refusal, that wording is used.
:class:`LedgerBroken` is no refusal: the node stops rather than go on with a state that is wrong.
"""

from __future__ import annotations

from meshnode.domain.errors import MeshnodeError


class Rejected(MeshnodeError):
    """Refused by a rule; nothing has changed."""

    def __init__(self) -> None:
        # With ``python -OO`` there is no docstring, and the class name is the message.
        super().__init__((type(self).__doc__ or type(self).__name__).removesuffix("."))


class LedgerBroken(MeshnodeError):
    """The state machine contradicts itself: a defect, or a damaged store. Stop, commit nothing."""


# Bytes and signatures.


class MalformedJson(Rejected):
    """Malformed JSON."""


class TooLarge(MalformedJson):
    """JSON document exceeds its size limit."""


class TooDeep(MalformedJson):
    """JSON document is nested too deeply."""


class TooManyValues(MalformedJson):
    """JSON document has too many values."""


class DuplicateKey(MalformedJson):
    """Duplicate JSON key."""


class NonFiniteNumber(MalformedJson):
    """Nonfinite JSON number."""


class NumberOutOfRange(MalformedJson):
    """JSON number outside protocol bounds."""


class UnpairedSurrogate(MalformedJson):
    """JSON text holds half of a surrogate pair."""


class TransactionTooLarge(Rejected):
    """Transaction exceeds its size limit."""


class InvalidEnvelope(Rejected):
    """Invalid signed envelope."""


class InvalidPublicKey(Rejected):
    """Invalid public key."""


class InvalidSignatureEncoding(Rejected):
    """Invalid signature encoding."""


class InvalidSignature(Rejected):
    """Signature verification failed."""


# Any transaction.


class UnknownKind(Rejected):
    """Unknown native transaction kind."""


class InvalidSchema(Rejected):
    """Invalid transaction schema."""


class WrongChain(Rejected):
    """Wrong chain."""


class MempoolFull(Rejected):
    """Mempool is full."""


class TooManyOfSender(Rejected):
    """Too many transactions of this account are waiting."""


class WrongNonce(Rejected):
    """Wrong account nonce."""


class InvalidInteger(Rejected):
    """Integer outside protocol bounds."""


class InvalidDigest(Rejected):
    """Expected 64 lowercase hexadecimal characters."""


class InsufficientFunds(Rejected):
    """Insufficient available balance."""


# Bonds.


class InvalidConsensusKey(Rejected):
    """Invalid consensus key."""


class ConsensusKeyUsed(Rejected):
    """Consensus key was used before."""


class InvalidBondAmount(Rejected):
    """Bond must be a multiple of the voting unit."""


class InvalidPossession(Rejected):
    """Consensus-key possession proof failed."""


class NotBondOwner(Rejected):
    """Consensus bond belongs to a different account."""


class BondNotActive(Rejected):
    """Only an active bond can start withdrawal."""


class LastValidator(Rejected):
    """A replacement must join before the last validator exits."""


class BondStillExposed(Rejected):
    """Bond is still exposed to the evidence window."""


# Inference jobs.


class InvalidPrompt(Rejected):
    """Invalid inference prompt."""


class WrongServingRoot(Rejected):
    """Request must pin the current serving checkpoint."""


class JobQueueFull(Rejected):
    """Inference queue is full."""


class NoLiveJob(Rejected):
    """No live inference request for this provider."""


class WrongResult(Rejected):
    """Result differs from full replay."""


# Training tasks.


class UnknownTaskKind(Rejected):
    """Use an independent inference request."""


class TaskReserved(Rejected):
    """A task is already reserved."""


class WrongTaskParent(Rejected):
    """Wrong task parent or round."""


class InvalidWorkers(Rejected):
    """Wrong number of worker identities."""


class InvalidTaskBudget(Rejected):
    """Invalid or exhausted training budget."""


class TaskNotReserved(Rejected):
    """Task is not reserved by this account."""


class InvalidReceipts(Rejected):
    """Missing worker receipts."""


class WrongReceipt(Rejected):
    """Worker receipt differs from full replay."""


# Stakes.


class StakeTooSmall(Rejected):
    """Stake is below the minimum."""


class InsufficientStake(Rejected):
    """Unstake exceeds the staked amount."""


class StakeLocked(Rejected):
    """Stake has not reached its unlock date."""


class TooManyCooldowns(Rejected):
    """Too many unstake requests are cooling down."""


# Proofs and votes.


class InvalidProof(Rejected):
    """Invalid proof statement."""


class ProofKnown(Rejected):
    """This work was already claimed."""


class ProofQueueFull(Rejected):
    """Proof queue is full."""


class NoOpenProof(Rejected):
    """No open proof of that id."""


class NoVotingPower(Rejected):
    """Voter owns no active validator."""


class NothingAtStake(Rejected):
    """Stake is below the penalty for the prover's open proofs."""


class OwnProof(Rejected):
    """Voter is the prover."""


class AlreadyVoted(Rejected):
    """Validator has voted on this proof."""


# Blocks, commits and genesis.


class InvalidBlock(Rejected):
    """Invalid block."""


class WrongHeight(InvalidBlock):
    """Nonmonotonic block height or time."""


class TooManyTransactions(InvalidBlock):
    """Block exceeds its limits."""


class MissingQuorum(InvalidBlock):
    """Missing commit quorum for deferred verifier payment."""


class InvalidEvidence(InvalidBlock):
    """Invalid consensus evidence."""


class NoVotingPowerLeft(InvalidBlock):
    """Validator updates would remove all consensus weight."""


class InvalidTransaction(InvalidBlock):
    """Block holds a transaction that fails."""


class ForkedBlock(InvalidBlock):
    """Block does not follow the one that is known here."""


class WrongHeader(InvalidBlock):
    """Header differs from what the chain leads to."""

    def __init__(self, field: str) -> None:
        Exception.__init__(self, f"wrong {field} in the header")


class InvalidCommit(Rejected):
    """Commit does not prove its block."""


class MalformedBlock(Rejected):
    """Malformed block bytes."""


class InvalidGenesis(Rejected):
    """Invalid genesis."""
