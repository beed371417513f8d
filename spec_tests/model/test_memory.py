"""A node with a quarter of the layers needs about a quarter of the memory."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from spec_tests.model.small_models import make_model

LAYERS = 8
PROBE = Path(__file__).with_name("memory_probe.py")


def measure(directory: Path, layers: list[int]) -> dict[str, int]:
    command = [sys.executable, str(PROBE), str(directory), json.dumps(layers)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    sizes: dict[str, int] = json.loads(output)
    return sizes


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_quarter_of_the_layers_costs_a_quarter(tmp_path: Path) -> None:
    directory = make_model(
        tmp_path / "model",
        hidden_size=512,
        intermediate_size=2048,
        num_layers=LAYERS,
        num_heads=8,
        num_kv_heads=8,
        head_dim=64,
    )
    whole, quarter = measure(directory, list(range(LAYERS))), measure(directory, [2, 3])
    assert quarter["weights"] == pytest.approx(whole["weights"] / 4, rel=0.02)
    # Many torch functions import its compiler, which costs a second and 70 MB.
    assert not whole["compiler"]
    # Compare differences, since torch itself takes more memory than this model.
    spared = whole["weights"] - quarter["weights"]
    assert whole["kept"] - quarter["kept"] == pytest.approx(spared, rel=0.15)
    # Nor does loading take more: the files are mapped a little at a time, and packed row by row.
    assert whole["peak"] - quarter["peak"] <= 1.15 * spared
