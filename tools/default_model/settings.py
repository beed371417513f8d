"""Everything on which the trained weights depend, besides the corpus and the code."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from meshnode.model.config import DecoderConfig
from meshnode.model.training import Recipe

from .vocabulary import BEGIN_ID, END_ID

if TYPE_CHECKING:
    from collections.abc import Mapping

CONTEXT = 512


class Stage(NamedTuple):
    """Steps with one learning rate: linear warm-up, plateau, cosine in the last ``decay`` steps."""

    steps: int
    rate: float
    warmup: int
    decay: int


class Reading(NamedTuple):
    """Steps that read the corpus in one way."""

    steps: int
    long: bool
    """Whether rows are as long as the context, with several documents, instead of one each."""
    cut: float
    """Fraction of the documents that are tokenised in two parts."""


@dataclass(frozen=True)
class Settings:
    """The shape of the model, and how it is trained."""

    seed: int = 1
    vocab_size: int = 3000
    hidden_size: int = 128
    intermediate_size: int = 384
    num_layers: int = 8
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 32
    batch_tokens: int = 1024
    """Positions in a batch, including padding. Small, since the number of updates matters most."""
    stages: tuple[Stage, ...] = (
        # High: the model soon learns grammar and words, but noisy updates keep it from learning
        # names.
        Stage(1750, 2e-3, 300, 0),
        # Lower: the model learns to copy names and things, and learns the facts.
        Stage(6250, 7e-4, 0, 3200),
    )
    readings: tuple[Reading, ...] = (
        Reading(7200, long=False, cut=0.1),
        Reading(800, long=True, cut=0.1),
    )
    second_beta: float = 0.98
    final_fraction: float = 0.02
    autocast: bool = True
    """Matrix products in bfloat16; weights, gradients and updates stay in float32."""

    @property
    def steps(self) -> int:
        """The number of steps of the whole run."""
        return sum(stage.steps for stage in self.stages)

    def document(self) -> dict[str, object]:
        """Return the settings as a JSON object."""
        return asdict(self) | {"stages": list(self.stages), "readings": list(self.readings)}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Settings:
        """Make the settings from a JSON object."""
        values = dict(document)
        values["stages"] = tuple(Stage(*stage) for stage in values["stages"])
        values["readings"] = tuple(Reading(*part) for part in values["readings"])
        return cls(**values)

    def scaled(self, steps: int) -> Settings:
        """Return settings for the same run in about ``steps`` steps, to try something out."""
        share = steps / self.steps

        def fewer(count: int) -> int:
            return round(count * share)

        return replace(
            self,
            stages=tuple(
                Stage(fewer(s.steps), s.rate, fewer(s.warmup), fewer(s.decay)) for s in self.stages
            ),
            readings=tuple(r._replace(steps=fewer(r.steps)) for r in self.readings),
        )

    def config(self) -> DecoderConfig:
        """Return the shape of the model."""
        return DecoderConfig(
            vocab_size=self.vocab_size,
            hidden_size=self.hidden_size,
            intermediate_size=self.intermediate_size,
            num_layers=self.num_layers,
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
            head_dim=self.head_dim,
            context_length=CONTEXT,
            tied_head=True,
            bos_token_id=BEGIN_ID,
            eos_token_ids=(END_ID,),
        )

    def recipe(self, step: int) -> Recipe:
        """Return the optimiser's hyperparameters for the stage of this step."""
        start = 0
        for stage in self.stages:
            if step < start + stage.steps:
                break
            start += stage.steps
        return Recipe(
            learning_rate=stage.rate,
            warmup_steps=stage.warmup,
            total_steps=stage.steps if stage.decay else None,
            decay_steps=stage.decay,
            first_step=start,
            final_fraction=self.final_fraction,
            betas=(0.9, self.second_beta),
        )


def draft_settings() -> Settings:
    """The draft model's (decision 0231): small enough to propose tokens at hardly any cost."""
    return Settings(
        hidden_size=96,
        intermediate_size=208,
        num_layers=2,
        num_heads=3,
        num_kv_heads=1,
        batch_tokens=512,
        stages=(Stage(1000, 3e-3, 150, 0), Stage(3500, 1.5e-3, 0, 3000)),
        readings=(Reading(4300, long=False, cut=0.1), Reading(200, long=True, cut=0.1)),
        autocast=False,
    )
