"""The suite as one file: it runs from there, and says what it cannot judge without grpcio."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from conformance import onefile
from conformance.judging.toy.node import TOKEN
from conformance.judging.toy.serving import Serving

# An interpreter that finds no grpcio, as one without it.
WITHOUT = "import sys, runpy; sys.modules['grpc'] = None; sys.argv = sys.argv[1:];"
WITHOUT += "sys.path.insert(0, sys.argv[0]); runpy.run_path(sys.argv[0], run_name='__main__')"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the suite alone: the libraries are those of the interpreter."""
    path = tmp_path_factory.mktemp("one") / "suite.pyz"
    onefile.build(path, bare=True)
    return path


def ran(file: Path, *words: str, without_grpc: bool = False) -> subprocess.CompletedProcess[str]:
    """Run the file in its own folder, where no checkout is."""
    program = ["-c", WITHOUT, str(file)] if without_grpc else [str(file)]
    variables = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, *program, *words], cwd=file.parent, capture_output=True, text=True,
        timeout=300, check=False, env={**variables, "XDG_CACHE_HOME": str(file.parent / "cache")},
    )  # fmt: skip


def test_the_file_judges_and_leaves_all_reports(toy: Serving, file: Path) -> None:
    done = ran(file, "run", toy.url, "--token", TOKEN, "--examples", "1", "--out", "report")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "exit 0: conforms" in done.stdout
    left = {path.name for path in (file.parent / "report").iterdir()}
    assert {"report.html", "interface.html", "junit.xml"} < left


def test_without_grpcio_the_report_says_what_is_left_out(toy: Serving, file: Path) -> None:
    done = ran(file, "run", toy.url, "--examples", "1", without_grpc=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "of grpc: this Python has no grpcio" in done.stdout
    named = ran(file, "run", toy.url, "--profile", "dht", without_grpc=True)
    assert named.returncode == 4
    assert "this Python has no grpcio" in named.stderr


def test_files_for_other_programs_are_unpacked(file: Path) -> None:
    folder = Path(ran(file, "proto").stdout.strip())
    assert (folder / "node.proto").read_text().startswith("//") or (
        "syntax" in (folder / "node.proto").read_text()
    )


def test_only_pure_wheels_are_taken_by_version_and_hash() -> None:
    for name, digest in onefile.PURE.items():
        assert "==" in name
        assert len(bytes.fromhex(digest)) == 32
