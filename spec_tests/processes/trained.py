"""Nodes that train together and serve what they learn: how tests switch, watch and read them."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch

from spec_tests.processes.nodes import Node


def state_of(node: Node) -> dict[str, Any]:
    """What a node says of its training."""
    found: dict[str, Any] = node.ask("GET", "/api/training/status").json
    return found


def switch(nodes: list[Node], *, enabled: bool) -> None:
    """Turn training on or off at each node, while it runs."""
    for node in nodes:
        change = {"training": {"enabled": enabled}}
        assert node.ask("PATCH", "/api/v1/config", change).status == 200


def newest_is_served(node: Node) -> dict[str, Any]:
    """The state of a node that serves the newest weights that it has kept."""
    state = state_of(node)
    kept = [line for line in node.log().splitlines() if " kept, " in line][-1:]
    version = state["served"]["version"]
    return state if version and any(f"version {version} kept" in line for line in kept) else {}


def text_by_transformers(directory: Path, prompt: str, tokens: int) -> str:
    """What the library makes of a prompt with an exported directory."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers

        model: Any = transformers.AutoModelForCausalLM.from_pretrained(
            directory, dtype=torch.float32
        )
        tokenizer: Any = transformers.AutoTokenizer.from_pretrained(directory)
    inputs = tokenizer(prompt, return_tensors="pt")["input_ids"]
    mask = torch.ones_like(inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = model.generate(inputs, attention_mask=mask, max_new_tokens=tokens, do_sample=False)
    text: str = tokenizer.decode(found[0, inputs.shape[1] :], skip_special_tokens=True)
    return text
