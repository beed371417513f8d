"""The chain's execution profile over this node's model (interface 4.2; native network 6).

Implements :class:`meshnode.domain.chain.context.ModelPort` for the ledger's thread, and describes
the model for the chain's genesis and the native API. Terms: see :mod:`meshnode.model.execution`.

Invariants: one computation runs at a time; a lost adapter is recomputed from the first round, so
that only the model and the data set are needed to go on; a node whose model or arithmetic differs
from the chain's reports that and does not compute for the chain.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from meshnode.datadir import write_private
from meshnode.domain.chain.canonical import Json, digest
from meshnode.domain.chain.context import TrainingReplay
from meshnode.domain.chain.errors import InvalidPrompt, LedgerBroken, Rejected
from meshnode.domain.chain.genesis import GenesisFacts
from meshnode.domain.chain.profile import NetworkProfile
from meshnode.domain.chain.records import Job, Lease
from meshnode.domain.errors import StartupError
from meshnode.model.adapter import LEARNING_RATE, RANK, Adapter
from meshnode.model.data import TokenData
from meshnode.model.dataset import SEQUENCE_LENGTH, Dataset, make_dataset
from meshnode.model.documents import ModelUnreadable
from meshnode.model.exact_decoder import require_executable
from meshnode.model.execution import (
    ARITHMETIC,
    PROFILE_VECTOR,
    PROMPT_TOKENS,
    ChainModel,
    RoundUpdate,
    feature_receipt,
    features_document,
    profile_vector,
    update_receipt,
)
from meshnode.model.files import TOKENIZER_FILE, open_files
from meshnode.model.loading import load_model
from meshnode.model.manifest import manifest_of
from meshnode.services.work.adapters import AdapterStore

log = logging.getLogger(__name__)

WEIGHTS_CACHE = "weights.json"
DATASET_FILE = "dataset.json"
VERSION = "meshnode-chain-v1"
ANOTHER_MODEL = (
    "the chain's model is not the one that the chain was started with; "
    "name the directory of that one with --chain-model"
)
REMEMBERED_ANSWERS = 64
"""The provider and the ledger need the same answers; this is twice the limit of pending jobs."""
REMEMBERED_STEPS = 8
"""The training steps of the current lease and of those that were just accepted."""

K = TypeVar("K")
T = TypeVar("T")


class AdapterMissing(LedgerBroken):
    """The state names an adapter that this node neither has nor can recompute from the rounds."""


class NoFiniteResult(Rejected):
    """The model computes no finite result."""


class Execution:
    """Handle of the profile. Its methods block, and may be called from any thread."""

    def __init__(
        self,
        model: ChainModel,
        facts: GenesisFacts,
        profile: NetworkProfile,
        names: Mapping[str, Json],
        folder: Path,
    ) -> None:
        """``names`` describe the model to people; ``folder`` keeps the adapters.

        Raises StartupError if the folder cannot be used.
        """
        self._model = model
        self._facts = facts
        self._profile = profile
        self._names = names
        self._adapters = AdapterStore(folder, model.config.hidden_size)
        # One computation at a time, because inference needs the processors too.
        self._computing = threading.RLock()
        self._answers: OrderedDict[tuple[str, str, int], dict[str, Json]] = OrderedDict()
        self._steps: OrderedDict[tuple[str, int], tuple[RoundUpdate, str]] = OrderedDict()
        self.conformant = profile_vector() == PROFILE_VECTOR
        """Whether this machine computes as the chain does; otherwise it must not validate."""
        if not self.conformant:
            log.error("this machine does not compute the chain's test vector: it must not validate")

    def genesis_facts(self) -> GenesisFacts:
        """The facts about this model that the genesis of a new chain has."""
        return self._facts

    def mismatch(self, manifest: Mapping[str, Json]) -> str | None:
        """Why this node cannot execute the chain of ``manifest``; None when it can."""
        if not self.conformant:
            return "this machine does not compute the chain's test vector"
        ours: dict[str, Json] = {
            **self._facts.extra,
            "initial_model_root": self._facts.model_root,
            "initial_validation_loss_hex": self._facts.validation_loss_hex,
        }
        different = [name for name, value in ours.items() if manifest.get(name) != value]
        if not different:
            return None
        if "model" in different:
            return ANOTHER_MODEL
        return f"the model in use differs from the chain's in {', '.join(sorted(different))}"

    @property
    def weight_bytes(self) -> int:
        """Memory that this copy of the weights takes, in addition to the engine's."""
        return self._model.decoder.nbytes

    @property
    def dataset_bytes(self) -> bytes:
        """``dataset.json``, byte for byte."""
        return self._model.dataset.data

    def training_data(self) -> TokenData:
        """The chain's data set, for training outside of the chain."""
        dataset = self._model.dataset
        return TokenData.of_sequences(dataset.train, dataset.validation)

    @property
    def tokenizer_revision(self) -> str:
        """The SHA-256 of the ``tokenizer.json`` that the data set was cut with, in hex."""
        return self._model.dataset.tokenizer_revision

    @property
    def dataset_sha256(self) -> str:
        """The SHA-256 of :attr:`dataset_bytes`, in hex."""
        return self._model.dataset.sha256

    def model_facts(self) -> dict[str, Json]:
        """The members of ``/api/model`` that do not depend on the chain's state."""
        config = self._model.config
        trainable = 2 * RANK * config.hidden_size
        return {
            **self._names,
            "parameter_count": config.parameters + trainable,
            "base_parameter_count": config.parameters,
            "trainable_parameter_count": trainable,
            "execution": {
                "model": {
                    "num_layers": config.num_layers,
                    "hidden_dim": config.hidden_size,
                    "num_heads": config.num_heads,
                    "num_kv_heads": config.num_kv_heads,
                    "intermediate_dim": config.intermediate_size,
                    "vocab_size": config.vocab_size,
                    "max_seq_len": min(PROMPT_TOKENS, config.context_length),
                },
                "optimizer": "sgd, gradient clipped to norm 1",
                "learning_rate": LEARNING_RATE,
                "batch_size": 1,
                "sequence_length": SEQUENCE_LENGTH,
                "numerics": ARITHMETIC,
                "dataset_sha256": self._model.dataset.sha256,
            },
        }

    def checkpoint(self, root: str) -> dict[str, Json]:
        """``{a, b}`` of an adapter, as tensors in JSON. Raises AdapterMissing."""
        adapter = self._adapters.find(root)
        if adapter is None:
            raise AdapterMissing(f"no adapter with the root {root} is held here")
        return adapter.document()

    # The ledger's questions: see ModelPort.

    def check_request(self, prompt: str, max_tokens: int) -> None:
        """Raise InvalidPrompt for a request that does not fit the model's context."""
        self._model.prompt_tokens(prompt, max_tokens)

    def answer(self, job_id: str, job: Job) -> dict[str, Json]:
        """The answer to a job, computed once for all who ask."""
        return self.answer_prompt(job.model_root, job.prompt, job.max_tokens)

    def answer_prompt(self, model_root: str, prompt: str, max_tokens: int) -> dict[str, Json]:
        """The answer of an adapter to a prompt.

        Raises InvalidPrompt, NoFiniteResult, AdapterMissing.
        """
        key = (model_root, prompt, max_tokens)
        with self._computing, _finite():
            if key not in self._answers:
                adapter = self._adapter(model_root)
                value = self._model.answer(adapter, prompt, max_tokens)
                _keep(self._answers, key, value, REMEMBERED_ANSWERS)
            return self._answers[key]

    def train(self, lease: Lease) -> TrainingReplay:
        """Repeat the step of a lease, and keep the new adapter."""
        tokens = self.round_tokens(lease.round)
        step, validation_loss_hex = self._step(lease.parent, lease.round)
        first = feature_receipt(lease.task_id, lease.parent, tokens, step.feature_root)
        return TrainingReplay(
            result_root=step.adapter.root,
            loss_hex=step.loss_hex,
            validation_loss_hex=validation_loss_hex,
            receipts=(first, update_receipt(lease.task_id, lease.parent, tokens, step)),
        )

    def describe_task(self, round_number: int, model_root: str) -> dict[str, Json]:
        """``input_ids`` and ``weights`` of a round's task."""
        tokens = self.round_tokens(round_number)
        return {"input_ids": list(tokens), "weights": self._adapter(model_root).document()}

    # A worker's side of a task.

    def round_tokens(self, round_number: int) -> tuple[int, ...]:
        """The sequence that a round trains on."""
        return self._model.round_tokens(self._profile.batch_domain, round_number)

    def features(self, tokens: Sequence[int]) -> dict[str, Json]:
        """The activation of stage 0, a tensor ``[1, n, hidden]``."""
        with self._computing:
            return features_document(self._model.features(tokens))

    def update(self, weights: Json, round_number: int) -> RoundUpdate:
        """The update of stage 1 from the adapter ``weights``. Raises InvalidTensor."""
        adapter = Adapter.read(weights, self._model.config.hidden_size)
        with self._computing:
            return self._advance(adapter, round_number)

    def _step(self, parent: str, round_number: int) -> tuple[RoundUpdate, str]:
        with self._computing, _finite():
            key = (parent, round_number)
            if key not in self._steps:
                step = self._advance(self._adapter(parent), round_number)
                loss = self._model.validation_loss(step.adapter).hex()
                _keep(self._steps, key, (step, loss), REMEMBERED_STEPS)
            return self._steps[key]

    def _advance(self, adapter: Adapter, round_number: int) -> RoundUpdate:
        tokens = self.round_tokens(round_number)
        step = self._model.step(adapter, tokens, self._model.features(tokens))
        self._adapters.save(step.adapter)
        return step

    def _adapter(self, root: str) -> Adapter:
        """An adapter that the state names; made again if it was lost."""
        adapter = self._adapters.find(root)
        if adapter is not None:
            return adapter
        with self._computing:
            log.warning("adapter %s is not on the disk: repeating the rounds", root)
            adapter = self._adapters.initial
            for number in range(self._profile.params.max_training_tasks):
                adapter = self._advance(adapter, number).adapter
                if adapter.root == root:
                    return adapter
        raise AdapterMissing(f"no round of this chain leads to the adapter {root}")


@contextmanager
def _finite() -> Iterator[None]:
    """Turn a result that is not finite into a refusal: every node finds it, so none may stop."""
    try:
        yield
    except ArithmeticError:
        raise NoFiniteResult from None


def load_execution(
    directory: Path, folder: Path, profile: NetworkProfile, dataset: bytes | None = None
) -> Execution:
    """Load the complete model of ``directory`` for the chain of ``profile``.

    ``dataset`` is the chain's data set, if it was fetched. Otherwise the one that an earlier start
    left in ``folder`` is used, or the one that a new chain with this model gets. Blocks: reads the
    weights a second time, as doubles, and computes the facts of a genesis, which takes a second for
    the default model. Raises ModelUnreadable, in one line, for a model that a chain cannot use.
    """
    files = open_files(directory)
    # Checked first, so that a large model is not read for nothing.
    require_executable(files.config())
    loaded = load_model(files, trainable=True)
    config, tokenizer = loaded.decoder.config, loaded.tokenizer
    revision = hashlib.sha256(files.read(TOKENIZER_FILE) or b"").hexdigest()
    ends = sorted(loaded.eos_token_ids)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        manifest = manifest_of(files, config, folder / WEIGHTS_CACHE)
        sequences = (
            _stored_dataset(folder / DATASET_FILE, revision, config.vocab_size)
            if dataset is None
            else Dataset.read(dataset, config.vocab_size)
        )
        if sequences is None or dataset is not None:
            sequences = sequences or make_dataset(tokenizer, revision, ends[0] if ends else None)
            write_private(folder / DATASET_FILE, sequences.data)
    except OSError as error:
        raise StartupError(f"cannot use {folder}: {error.strerror}") from None
    model = ChainModel(
        loaded.decoder, tokenizer, loaded.eos_token_ids, sequences, profile.limits.output_tokens
    )
    extra: dict[str, Json] = {
        "version": VERSION,
        "dataset_root": sequences.root,
        "dataset_sha256": sequences.sha256,
        "model": {
            "weights_sha256": manifest.weights_hash,
            "tokenizer_sha256": revision,
            "config_sha256": digest(config.document()),
            "eos_token_ids": [*ends],
        },
        "execution": {"arithmetic": ARITHMETIC, "vector": PROFILE_VECTOR},
    }
    initial = Adapter.initial(config.hidden_size)
    try:
        extra["numerical_conformance"] = model.conformance(profile.batch_domain)
        facts = GenesisFacts(initial.root, model.validation_loss(initial).hex(), extra)
    except (InvalidPrompt, ArithmeticError):
        raise ModelUnreadable(f"{directory}: the model cannot answer the chain's vector") from None
    names: dict[str, Json] = {
        "model_name": loaded.card.name,
        "model_source": files.name,
        "model_revision": manifest.weights_hash,
    }
    return Execution(model, facts, profile, names, folder)


def _stored_dataset(path: Path, revision: str, vocab_size: int) -> Dataset | None:
    """The data set of an earlier start, if this model's tokenizer made it."""
    try:
        sequences = Dataset.read(path.read_bytes(), vocab_size)
    except FileNotFoundError:
        return None
    except ModelUnreadable as error:
        log.warning("%s is made anew: %s", path, error)
        return None
    return sequences if sequences.tokenizer_revision == revision else None


def _keep(known: OrderedDict[K, T], name: K, value: T, most: int) -> None:
    known[name] = value
    known.move_to_end(name)
    while len(known) > most:
        known.popitem(last=False)
