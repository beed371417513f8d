"""Training with a liar among five: robust rules learn where the mean does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.byzantine import LIES, losses, small_model
from meshnode.model.diloco import Rule
from meshnode.wire.gradients import Format

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("model"))


ROUNDS = 4


@pytest.mark.slow
@pytest.mark.parametrize("rule", [Rule.TRIMMED_MEAN, Rule.MEDIAN, Rule.KRUM])
def test_a_liar_does_not_keep_the_others_from_learning(model: Path, rule: Rule) -> None:
    for name, lie in LIES.items():
        found = losses(model, rule, lie, ROUNDS)
        assert found[-1] < found[0] - 1.0, (name, found)


@pytest.mark.slow
@pytest.mark.parametrize("lie", ["sign flip", "scale"])
def test_the_mean_believes_the_liar(model: Path, lie: str) -> None:
    found = losses(model, Rule.MEAN, LIES[lie], ROUNDS)
    robust = losses(model, Rule.TRIMMED_MEAN, LIES[lie], ROUNDS)
    assert found[-1] > robust[-1] + 1.0


@pytest.mark.slow
def test_without_liars_all_rules_learn(model: Path) -> None:
    for rule in Rule:
        found = losses(model, rule, None, ROUNDS)
        assert found[-1] < found[0] - 1.0, (rule, found)


@pytest.mark.slow
@pytest.mark.parametrize("lie", ["sign flip", "wrong way"])
def test_what_most_find_harmful_is_left_out(model: Path, lie: str) -> None:
    # Two rounds more than elsewhere: a lie of honest size among sparse contributions does little
    # harm in each round, and counts in the first two.
    rule, kind, rounds = Rule.TRIMMED_MEAN, Format.SPARSE, ROUNDS + 2
    heard = losses(model, rule, LIES[lie], rounds, kind=kind)
    judged = losses(model, rule, LIES[lie], rounds, kind=kind, judged=True)
    assert judged[-1] < heard[-1] - 0.05
    # In the first round nobody has an opinion yet.
    assert judged[:2] == heard[:2]


@pytest.mark.slow
def test_without_liars_nobody_is_left_out(model: Path) -> None:
    rule, kind = Rule.TRIMMED_MEAN, Format.SPARSE
    heard = losses(model, rule, None, ROUNDS, kind=kind)
    assert losses(model, rule, None, ROUNDS, kind=kind, judged=True) == heard
