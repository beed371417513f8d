"""Files that are written in parts are what the library reads."""

from __future__ import annotations

from pathlib import Path

import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open

from meshnode.datadir import write_private_parts
from meshnode.model.tensor_file import file_parts

names = st.text("abcdefgh.0123456789_", min_size=1, max_size=30)
shapes = st.lists(st.integers(1, 5), min_size=1, max_size=3)


@given(st.dictionaries(names, shapes, max_size=5), st.dictionaries(names, st.text(max_size=9)))
def test_the_library_reads_equal_tensors(
    wanted: dict[str, list[int]], text: dict[str, str]
) -> None:
    tensors = {name: torch.randn(*shape) for name, shape in wanted.items()}
    found = safetensors.torch.load(b"".join(file_parts(tensors, text)))
    assert found.keys() == tensors.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())


def test_metadata_and_slices_are_written_too(tmp_path: Path) -> None:
    whole = torch.arange(12.0).reshape(3, 4)
    path = tmp_path / "file.safetensors"
    write_private_parts(path, file_parts({"rows": whole[1:], "turned": whole.T}, {"place": "3:0"}))
    with safe_open(path, framework="pt") as file:
        assert file.metadata() == {"place": "3:0"}
        assert torch.equal(file.get_tensor("rows"), whole[1:])
        assert torch.equal(file.get_tensor("turned"), whole.T)


def test_other_types_are_refused() -> None:
    with pytest.raises(TypeError, match="w is not float32"):
        list(file_parts({"w": torch.zeros(2, dtype=torch.float64)}))
