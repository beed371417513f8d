"""Where the compiled kernels come from: the package, or a compiler on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from meshnode.model.kernels import build


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A package without libraries, and a compiler that makes empty files."""
    monkeypatch.setattr(build, "BROUGHT", tmp_path / "built")
    monkeypatch.setattr(build, "_compile", lambda command, path: path.touch())
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("MESHNODE_KERNELS", raising=False)
    monkeypatch.setattr(build, "_compiler", lambda: "c++")
    monkeypatch.setattr(build, "_version", lambda compiler: "1")
    return tmp_path / "built"


def test_what_the_package_brings_needs_no_compiler(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert build.library_path().parent.parent == package.parent / "cache"
    made = build.bring()
    assert len(set(made)) == 3
    monkeypatch.setattr(build, "_compiler", _none)
    assert build.library_path() in made
    # One library for each kind of processor.
    monkeypatch.setattr(build, "_processor_options", lambda: ())
    plain = build.library_path()
    monkeypatch.setattr(build, "_processor_options", lambda: ("-mavxvnni",))
    assert build.library_path() in {*made} - {plain}


def test_libraries_of_other_sources_are_not_used(
    package: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    build.bring()
    sources = tmp_path / "source"
    sources.mkdir()
    (sources / build.MAIN).write_text("other")
    monkeypatch.setattr(build, "SOURCE", sources)
    assert build.library_path().parent != package


def _none() -> str:
    raise build.NoKernels("there is no C++ compiler")
