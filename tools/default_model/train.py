"""Trains the default model: ``python -m tools.default_model.train --out DIR``.

The run is a function of its settings: corpus, tokenizer, initial weights and order of batches all
come from seeds. It can be stopped at any time and continued with ``--resume``. A checkpoint is one
safetensors file with the trainer's state; its position in the corpus follows from the step count.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from meshnode.model.decoder import Decoder
from meshnode.model.loading import DEFAULT_MODEL, load_model
from meshnode.model.run import TrainingRun, show_progress
from meshnode.model.tokenizer import Tokenizer
from meshnode.model.training import IGNORED, Batch, Evaluation, InnerTrainer, evaluate

from .asset import write_asset
from .card import model_card
from .corpus import HELD_OUT_SEED, TRAINING_SEED, documents
from .packing import packed_batches, single_batches
from .settings import CONTEXT, Settings, draft_settings
from .vocabulary import END_ID, document_tokens, train_tokenizer

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

    from tokenizers import Tokenizer as Backend
    from torch import Tensor

HELD_OUT_DOCUMENTS = 1000
SAMPLE_DOCUMENTS = 40
"""How many held-out documents a quick check of the shipped asset uses."""
CORPUS_DIGEST_DOCUMENTS = 2000
"""How many of the first training documents the digest in the metrics covers."""
EMBEDDING_SCALE = 1.5
COPY_SCALE = 0.3


def training_batches(
    settings: Settings, tokenizer: Backend, texts: Iterable[str]
) -> Iterator[Batch]:
    """Yield the batches of the whole run."""
    rng = random.Random(settings.seed)
    source = iter(texts)
    for reading in settings.readings:
        tokens = (document_tokens(tokenizer, text, rng, reading.cut) for text in source)
        area = settings.batch_tokens
        if reading.long:
            found = packed_batches(tokens, length=CONTEXT, size=area // CONTEXT, pad=END_ID)
        else:
            found = single_batches(tokens, area=area, pad=END_ID, rng=rng)
        yield from islice(found, reading.steps)


def relabelled(batches: Iterable[Batch], teacher: Decoder) -> Iterator[Batch]:
    """Batches whose targets are the tokens that the teacher finds most likely.

    A draft model is there to guess what the model that it drafts for will choose, not what the
    corpus has.
    """
    for batch in batches:
        with torch.inference_mode():
            likely = teacher(batch.inputs).argmax(-1)
        yield Batch(batch.inputs, torch.where(batch.targets == IGNORED, IGNORED, likely))


def held_out_documents(seen: Container[str], count: int = HELD_OUT_DOCUMENTS) -> dict[int, str]:
    """Return the first ``count`` held-out documents that differ from each other and all ``seen``.

    The keys are indices in the held-out corpus. Short documents often repeat a training document
    and are dropped, so the rest is a little harder than the corpus.
    """
    chosen: dict[int, str] = {}
    taken: set[str] = set()
    for index, text in enumerate(documents(HELD_OUT_SEED)):
        if text not in seen and text not in taken:
            chosen[index] = text
            taken.add(text)
        if len(chosen) == count:
            break
    return chosen


def held_out_loss(model: Decoder, tokenizer: Backend, texts: Iterable[str]) -> Evaluation:
    """Return the mean loss on ``texts``, each packed completely."""
    tokens = [document_tokens(tokenizer, text) for text in texts]
    return evaluate(model, packed_batches(tokens, length=CONTEXT, size=8, pad=END_ID))


@torch.no_grad()
def start_weights(model: Decoder, generator: torch.Generator) -> None:
    """Initialise the weights, with attention that copies what it attends to.

    The output projection starts as the transpose of the value projection. Since the head is the
    embedding, attending to a token then makes that token more likely, and so small a model need not
    spend most of its training on learning that names can be copied.
    """
    model.init_weights(generator)
    model.get_parameter("embedding.weight").mul_(EMBEDDING_SCALE)
    config = model.config
    heads, kv_heads, size = config.num_heads, config.num_kv_heads, config.head_dim
    for layer in range(config.num_layers):
        qkv = model.get_parameter(f"layers.{layer}.attention.qkv.weight")
        value = qkv[(heads + kv_heads) * size :]
        basis, _ = torch.linalg.qr(torch.randn(value.shape, generator=generator).T)
        value.copy_(basis.T * COPY_SCALE)
        shared = heads // kv_heads
        columns = value.view(kv_heads, size, -1).repeat_interleave(shared, 0).flatten(0, 1).T
        model.get_parameter(f"layers.{layer}.attention.output.weight").copy_(columns / shared)


class Run:
    """One training run in a working folder: checkpoints, progress, and the asset at the end."""

    def __init__(self, settings: Settings, work: Path, teacher: Decoder | None = None) -> None:
        """With a ``teacher``, a draft model for it is trained."""
        self.settings = settings
        self.teacher = teacher
        self.checkpoint = work / "checkpoint.safetensors"
        self.tokenizer = train_tokenizer(settings.vocab_size)
        self.model = Decoder(settings.config())
        start_weights(self.model, torch.Generator().manual_seed(settings.seed))
        self.trainer = InnerTrainer(self.model, settings.recipe(0), self._forward)
        # ``meshnode train`` has the same loop, checkpoints and progress.
        self.run = TrainingRun(
            self.trainer,
            self.checkpoint,
            settings=settings.document(),
            steps=settings.steps,
            recipe=settings.recipe,
        )
        self.read: set[str] = set()
        """The training documents so far, which must not be among the held-out ones."""

    def _forward(self, inputs: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=self.settings.autocast):
            logits: Tensor = self.model(inputs)
        return logits

    def train(self) -> None:
        """Run the remaining steps."""
        batches = training_batches(self.settings, self.tokenizer, self._texts())
        if self.teacher is not None:
            batches = relabelled(batches, self.teacher)
        self.run.run(batches, show_progress)

    def _texts(self) -> Iterator[str]:
        for text in documents(TRAINING_SEED):
            self.read.add(text)
            yield text

    def finish(self, out: Path) -> dict[str, object]:
        """Measure the model, write the asset, and return the metrics."""
        with torch.no_grad():
            # The asset has bfloat16 weights, so the held-out loss is measured with these.
            for parameter in self.model.parameters():
                parameter.copy_(parameter.bfloat16())
        held_out = held_out_documents(self.read)
        evaluation = held_out_loss(self.model, self.tokenizer, held_out.values())
        indices = list(held_out)[:SAMPLE_DOCUMENTS]
        sample = held_out_loss(self.model, self.tokenizer, [held_out[i] for i in indices])
        metrics: dict[str, object] = {
            "held_out_loss": round(evaluation.loss, 5),
            "held_out_perplexity": round(evaluation.perplexity, 4),
            "held_out_documents": len(held_out),
            "held_out_tokens": evaluation.tokens,
            "held_out_sha256": sha256(held_out.values()),
            "held_out_sample": {
                "indices": indices,
                "loss": round(sample.loss, 5),
                "tokens": sample.tokens,
            },
            "train_loss_last_50_steps": round(self.run.loss, 5),
            "steps": self.trainer.step_count,
            "tokens": self.trainer.step_count * self.settings.batch_tokens,
            "wall_seconds": round(self.run.seconds),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "parameters": self.settings.config().parameters,
            "training_documents": len(self.read),
            "corpus_sha256": sha256(islice(documents(TRAINING_SEED), CORPUS_DIGEST_DOCUMENTS)),
            "settings": self.settings.document(),
        }
        # From here on the decoder computes in float32; autocast was for training only.
        card = model_card(self.model, Tokenizer(self.tokenizer), metrics)
        write_asset(out, self.model, self.tokenizer, metrics, card)
        return metrics


def sha256(texts: Iterable[str]) -> str:
    """Return the digest of texts in order, each followed by a zero byte."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode() + b"\0")
    return digest.hexdigest()


def main(arguments: list[str] | None = None) -> int:
    """Train, or continue training, and write the asset."""
    parser = argparse.ArgumentParser(prog="tools.default_model.train", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the asset to write")
    parser.add_argument("--work", type=Path, help="folder of the checkpoint; default: OUT.work")
    parser.add_argument("--steps", type=int, help="of a run scaled down or up")
    parser.add_argument(
        "--draft", action="store_true", help="train the draft model of the default model instead"
    )
    parser.add_argument("--resume", action="store_true", help="continue from the checkpoint")
    parser.add_argument(
        "--threads",
        type=int,
        default=1,
        help="number of torch threads; a repeated run needs the same number",
    )
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    out: Path = options.out.resolve()
    work: Path = options.work or out.with_name(out.name + ".work")
    work.mkdir(parents=True, exist_ok=True)
    settings = draft_settings() if options.draft else Settings()
    if options.steps is not None:
        settings = settings.scaled(options.steps)
    teacher = load_model(DEFAULT_MODEL).decoder if options.draft else None
    run = Run(settings, work, teacher)
    if options.resume:
        run.run.resume()
    run.train()
    print(json.dumps(run.finish(out), indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
