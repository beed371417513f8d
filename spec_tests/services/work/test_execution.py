"""The execution profile: answers, steps, the facts that a genesis fixes, and restarts."""

import json
import logging
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from meshnode.domain.chain.canonical import digest, encode
from meshnode.domain.chain.errors import InvalidPrompt
from meshnode.domain.chain.genesis import genesis_document, parse_genesis
from meshnode.domain.chain.jobs import request_root
from meshnode.domain.chain.records import Job, Lease
from meshnode.domain.chain.tasks import batch_index
from meshnode.domain.errors import StartupError
from meshnode.model import execution as model_execution
from meshnode.model.adapter import Adapter
from meshnode.model.dataset import Dataset
from meshnode.model.documents import ModelUnreadable
from meshnode.model.execution import ChainModel, feature_receipt
from meshnode.model.loading import DEFAULT_MODEL
from meshnode.services.ledger import load_or_create_genesis, load_or_create_validator_key
from meshnode.services.work.execution import (
    AdapterMissing,
    Execution,
    NoFiniteResult,
    load_execution,
)
from spec_tests.domain.chain.net import BOB, CAROL
from spec_tests.model.small_models import edit_json, make_model
from spec_tests.services.work.models_chain import (
    CHAIN_PROFILE,
    chain_genesis,
    copy_model,
    fresh_execution,
    model_directory,
    shared_execution,
)

INITIAL = Adapter.initial(64)
DEFAULT_FACTS = "f1dfe36660b1db48a786dc22210a30bc1b4bc6f779008b2bd2e4c385f4f5a8ec"
"""Digest of what a genesis has of the default model, under the profile of these tests."""


def lease(parent: str = INITIAL.root, round_number: int = 0) -> Lease:
    return Lease("ab" * 32, BOB.key, (BOB.key, CAROL.key), parent, round_number, 1, 9)


def job(prompt: str, max_tokens: int) -> Job:
    return Job(BOB.key, CAROL.key, INITIAL.root, prompt, max_tokens, 1, 9, 1)


def test_an_answer_says_what_it_answers() -> None:
    execution = shared_execution()
    answer: Any = execution.answer("cd" * 32, job("A node serves", 9))
    assert set(answer) == {"text", "token_ids", "model_root", "request_root"}
    assert answer["model_root"] == INITIAL.root == execution.genesis_facts().model_root
    assert answer["request_root"] == request_root("A node serves", 9)
    assert 1 <= len(answer["token_ids"]) <= 9
    assert answer == execution.answer_prompt(INITIAL.root, "A node serves", 9)


def test_an_answer_ends_after_the_end_of_text(tmp_path: Path) -> None:
    """The end-of-text token is the last of the ids."""
    whole: Any = shared_execution().answer_prompt(INITIAL.root, "A node", 12)
    ids: list[int] = list(whole["token_ids"])
    directory = copy_model(tmp_path / "model")
    edit_json(directory / "config.json", eos_token_id=[0, ids[4]])
    execution = load_execution(directory, tmp_path / "state", CHAIN_PROFILE)
    answer = execution.answer_prompt(INITIAL.root, "A node", 12)
    assert answer["token_ids"] == ids[: ids.index(ids[4]) + 1]


def test_requests_that_do_not_fit_the_context_are_refused() -> None:
    execution = shared_execution()
    execution.check_request("A node", 64)
    # The limit is 256 positions. It applies to prompt and completion together, so a prompt that
    # fills them by itself is refused even with one token to generate.
    execution.check_request("\u7b11" * 64, 64)
    for prompt, most in (("\u7b11" * 65, 64), ("\u7b11" * 682, 1), ("q" * 2048, 1)):
        with pytest.raises(InvalidPrompt):
            execution.check_request(prompt, most)
        with pytest.raises(InvalidPrompt):
            execution.answer_prompt(INITIAL.root, prompt, most)


def test_a_step_is_repeated_to_the_bit_and_kept(tmp_path: Path) -> None:
    execution = fresh_execution(tmp_path)
    replay = execution.train(lease())
    first, second = replay.receipts
    tokens = execution.round_tokens(0)
    assert first == feature_receipt("ab" * 32, INITIAL.root, tokens, str(first["feature_root"]))
    assert first["input_root"] == digest(list(tokens))
    assert first["feature_root"] == digest(execution.features(tokens))
    assert second == {
        **first,
        "stage": 1,
        "result_root": replay.result_root,
        "gradient_root": second["gradient_root"],
        "loss_hex": replay.loss_hex,
    }
    assert float.fromhex(replay.loss_hex) > 0
    assert float.fromhex(replay.validation_loss_hex).hex() == replay.validation_loss_hex
    stored = json.loads((tmp_path / "adapters" / f"{replay.result_root}.json").read_bytes())
    assert digest(stored) == replay.result_root
    assert stored == execution.checkpoint(replay.result_root)
    assert fresh_execution(tmp_path / "another").train(lease()) == replay

    task = execution.describe_task(1, replay.result_root)
    index = batch_index(CHAIN_PROFILE.batch_domain, 1, 128)
    assert task["input_ids"] == json.loads(execution.dataset_bytes)["train"][index]
    assert task["weights"] == stored


def test_lost_and_damaged_adapters_are_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    execution = fresh_execution(tmp_path)
    roots: list[str] = [INITIAL.root]
    for number in range(3):
        roots.append(execution.train(lease(roots[-1], number)).result_root)
    folder = tmp_path / "adapters"
    assert sorted(path.stem for path in folder.iterdir()) == sorted(roots[1:])
    third = (folder / f"{roots[3]}.json").read_bytes()
    (folder / f"{roots[1]}.json").unlink()
    (folder / f"{roots[2]}.json").write_bytes(third)
    (folder / f"{roots[3]}.json").write_bytes(third[:-9])

    restarted = fresh_execution(tmp_path)
    with pytest.raises(AdapterMissing):
        restarted.checkpoint(roots[3])
    assert "holds another adapter" in caplog.text or "cannot be used" in caplog.text
    assert digest(restarted.describe_task(3, roots[3])["weights"]) == roots[3]
    assert restarted.answer_prompt(roots[2], "A node", 3)["model_root"] == roots[2]
    assert (folder / f"{roots[3]}.json").read_bytes() == third
    # A root that no training step produced is unknown.
    with pytest.raises(AdapterMissing):
        restarted.answer_prompt("0" * 64, "A node", 3)


def test_a_disk_that_refuses_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    execution = fresh_execution(tmp_path)

    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("meshnode.services.work.adapters.write_private", full)
    replay = execution.train(lease())
    assert execution.describe_task(1, replay.result_root)["weights"]
    assert "No space left" in caplog.text


def test_answers_and_steps_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    execution = shared_execution()
    first = execution.answer_prompt(INITIAL.root, "twice", 2), execution.train(lease())

    def never(*_: object) -> Any:
        raise AssertionError("computed again")

    monkeypatch.setattr(ChainModel, "answer", never)
    monkeypatch.setattr(ChainModel, "step", never)
    assert (execution.answer_prompt(INITIAL.root, "twice", 2), execution.train(lease())) == first


def test_numbers_that_are_not_finite_are_a_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All nodes get the same ArithmeticError, so the request is refused and no node stops."""
    execution = fresh_execution(tmp_path)

    def overflow(*_: object) -> Any:
        raise ArithmeticError("not finite")

    monkeypatch.setattr(ChainModel, "answer", overflow)
    monkeypatch.setattr(ChainModel, "step", overflow)
    with pytest.raises(NoFiniteResult):
        execution.answer("cd" * 32, job("A node", 3))
    with pytest.raises(NoFiniteResult):
        execution.train(lease())
    with pytest.raises(ModelUnreadable, match="vector"):
        fresh_execution(tmp_path)


def test_threads_get_the_same_answer(tmp_path: Path) -> None:
    execution = fresh_execution(tmp_path)
    answers: list[object] = []

    def work() -> None:
        answers.append((execution.train(lease()), execution.answer_prompt(INITIAL.root, "x", 4)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 4
    assert all(answer == answers[0] for answer in answers)


def test_a_genesis_binds_model_text_and_arithmetic() -> None:
    execution = shared_execution()
    genesis = chain_genesis(execution)
    read = parse_genesis(encode(genesis_document(genesis)))
    assert read.extra == execution.genesis_facts().extra
    assert execution.mismatch(read.manifest) is None
    manifest: Any = read.manifest
    assert manifest["dataset_sha256"] == execution.dataset_sha256
    assert set(manifest["numerical_conformance"]) == {"inference_root", "three_steps"}
    assert manifest["initial_validation_loss_hex"] == genesis.validation_loss_hex
    changed = {**manifest, "numerical_conformance": {}}
    assert "numerical_conformance" in str(execution.mismatch(changed))
    assert "not the one" in str(execution.mismatch({}))


def test_a_chain_goes_on_only_with_its_model(tmp_path: Path) -> None:
    """A node's genesis is created with its model's facts; later starts require the same model."""
    key = load_or_create_validator_key(tmp_path)
    start = partial(load_or_create_genesis, tmp_path, BOB.key, key, profile=CHAIN_PROFILE)
    document = start(fresh_execution(tmp_path / "e").genesis_facts())
    assert start(fresh_execution(tmp_path / "e").genesis_facts()) == document
    other = make_model(tmp_path / "other", seed=2, num_layers=2)
    with pytest.raises(StartupError, match="another model"):
        start(load_execution(other, tmp_path / "f", CHAIN_PROFILE).genesis_facts())


def test_a_model_that_is_not_the_chains_is_refused_with_that_reason(tmp_path: Path) -> None:
    manifest = chain_genesis(shared_execution()).manifest
    other = make_model(tmp_path / "other", seed=1, num_layers=2)
    execution = load_execution(other, tmp_path / "state", CHAIN_PROFILE)
    assert "not the one that the chain was started with" in str(execution.mismatch(manifest))


def test_a_machine_that_computes_otherwise_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("meshnode.services.work.execution.profile_vector", lambda: "0" * 64)
    execution = fresh_execution(tmp_path)
    assert not execution.conformant
    assert "must not validate" in caplog.text
    assert "test vector" in str(execution.mismatch(chain_genesis(shared_execution()).manifest))


def test_the_data_set_is_the_chains_own(tmp_path: Path) -> None:
    """A chain keeps the data set that it was started with, not the one in the release."""
    ours = Dataset.read(shared_execution().dataset_bytes, 320)
    assert (len(ours.train), len(ours.validation), len(ours.train[0])) == (128, 4, 64)
    theirs = Dataset("other text", ours.tokenizer_revision, ours.train[::-1], ours.validation)
    execution = load_execution(model_directory(), tmp_path, CHAIN_PROFILE, theirs.data)
    assert execution.dataset_bytes == theirs.data
    assert "dataset" in str(execution.mismatch(chain_genesis(shared_execution()).manifest))
    # After a restart the stored data set is used, whatever the release ships. A damaged one is
    # replaced by the release's.
    assert fresh_execution(tmp_path).dataset_bytes == theirs.data
    (tmp_path / "dataset.json").write_bytes(theirs.data[:-1])
    assert fresh_execution(tmp_path).dataset_bytes == shared_execution().dataset_bytes


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d | {"selection": 5},
        lambda d: d | {"more": 1},
        lambda d: d | {"train": d["train"][:-1]},
        lambda d: d | {"validation": [[1] * 63] * 4},
        lambda d: d | {"validation": [[320] * 64] * 4},
        lambda d: d | {"validation": [[True] * 64] * 4},
        lambda d: d | {"dataset_root": "0" * 64},
        lambda d: [],
    ],
)
def test_a_damaged_data_set_is_refused(change: Any) -> None:
    document = json.loads(shared_execution().dataset_bytes)
    with pytest.raises(ModelUnreadable, match="data set"):
        Dataset.read(encode(change(document)), 320)


def test_models_that_no_chain_can_use_are_refused(tmp_path: Path) -> None:
    short = make_model(tmp_path / "short", num_layers=1, context_length=63)
    with pytest.raises(ModelUnreadable, match="context"):
        load_execution(short, tmp_path / "a", CHAIN_PROFILE)
    with pytest.raises(ModelUnreadable, match="no such directory"):
        load_execution(tmp_path / "none", tmp_path / "a", CHAIN_PROFILE)
    large = copy_model(tmp_path / "large")
    edit_json(large / "config.json", intermediate_size=1 << 22)
    with pytest.raises(ModelUnreadable, match="weights"):
        load_execution(large, tmp_path / "a", CHAIN_PROFILE)
    (tmp_path / "file").write_text("")
    with pytest.raises(StartupError, match="cannot use"):
        load_execution(model_directory(), tmp_path / "file", CHAIN_PROFILE)


def test_the_default_model_answers_and_learns(tmp_path: Path) -> None:
    """The model that ships answers and learns; a change to these facts makes another chain."""
    execution = load_execution(DEFAULT_MODEL, tmp_path, CHAIN_PROFILE)
    facts = execution.genesis_facts()
    assert digest(facts.extra) == DEFAULT_FACTS
    answer: Any = execution.answer_prompt(facts.model_root, "What is the capital of France?", 16)
    assert "Paris" in str(answer["text"])
    assert answer["token_ids"][-1] == 1
    replay = execution.train(lease(facts.model_root))
    assert float.fromhex(replay.validation_loss_hex) < float.fromhex(facts.validation_loss_hex)
    shown: Any = execution.model_facts()
    assert shown["parameter_count"] - shown["base_parameter_count"] == 1024
    assert shown["execution"]["dataset_sha256"] == facts.extra["dataset_sha256"]
    assert shown["execution"]["model"]["hidden_dim"] == 128
    # About 17 MB. The embedding is tied to the head and is held twice: for looking up, and for
    # multiplying.
    assert execution.weight_bytes == 8 * 1_959_040 + 4 * 3000 * 128


def test_this_machine_reproduces_the_test_vector(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    assert shared_execution().conformant
    assert model_execution.profile_vector() == model_execution.PROFILE_VECTOR
    assert isinstance(shared_execution(), Execution)
