"""`python -m conformance.onefile FILE`: writes the suite as one file that any Python 3.11 runs.

The file has the suite and what it needs in pure Python: Hypothesis, protobuf, PyYAML and
sortedcontainers. It has no compiled code, so it has no grpcio: what it judges over gRPC needs
grpcio in the Python that runs it, and without that the report says so (decision 0197).

pip fetches the pure wheels of `PURE`, by version and hash. PyYAML has none, so its Python files
come from the environment that builds. With `--bare` the file has the suite alone.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import zipapp
from importlib import metadata
from pathlib import Path

HOME = Path(__file__).parent
# The last pure wheels; newer releases of Hypothesis have compiled code.
PURE = {
    "hypothesis==6.155.7": "9f634bdb1f9e9b8ab6ba09431cf2deedb750c96978125a6fb3c5a0f6c6db4131",
    "protobuf==7.36.2": "bdb3a345d48db958e6ce1f18e508beb0cc981d64f24088427549c866cd039f1e",
    "sortedcontainers==2.4.0": "a163dcaede0f1c021485e957a39245190e74249897e2ae4b2aa38595db237ee0",
}
COPIED = "PyYAML"
# What a run needs neither: tests, the judge of the suite, and what others have published.
LEFT_OUT = ("tests", "judging", "results", "build", "__pycache__", "*.egg-info", "*.pyc")
KEPT = ("judging/__init__.py", "judging/toy", "results/__init__.py", "results/page.py")


def build(target: Path, *, bare: bool = False) -> None:
    """Write the file. Raises `CalledProcessError` if pip cannot fetch what it needs."""
    with tempfile.TemporaryDirectory(prefix="zipapp-") as folder:
        root = Path(folder)
        _copy_suite(root / "conformance")
        if not bare:
            _fetch(root)
            _copy_pure(root)
        (root / "__main__.py").write_text(
            "import sys\n\nfrom conformance.cli import main\n\nsys.exit(main())\n",
            encoding="utf-8",
        )
        zipapp.create_archive(root, target, interpreter="/usr/bin/env python3", compressed=True)


def _copy_suite(to: Path) -> None:
    shutil.copytree(HOME, to, ignore=shutil.ignore_patterns(*LEFT_OUT))
    for kept in KEPT:
        source = HOME / kept
        if source.is_dir():
            shutil.copytree(source, to / kept, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            (to / kept).parent.mkdir(exist_ok=True)
            shutil.copy(source, to / kept)


def _fetch(root: Path) -> None:
    """Let pip unpack the pure wheels."""
    wanted = root / "wanted.txt"
    lines = [f"{name} --hash=sha256:{digest}" for name, digest in PURE.items()]
    wanted.write_text("\n".join(lines) + "\n", encoding="utf-8")
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"),
            *("--require-hashes", "--only-binary", ":all:", "--platform", "any"),
            *("--implementation", "py", "--abi", "none", "--python-version", "3.11"),
            *("--target", str(root), "-r", str(wanted)),
        ],
        check=True,
    )
    wanted.unlink()
    for name in ("bin", "__pycache__"):
        shutil.rmtree(root / name, ignore_errors=True)


def _copy_pure(root: Path) -> None:
    """Copy the Python files of an installed distribution, with its metadata and licence."""
    for file in metadata.files(COPIED) or ():
        if (file.suffix == ".py" and file.parts[0] == "yaml") or file.parts[0].endswith(
            "dist-info"
        ):
            path = root / file
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(str(file.locate()), path)


def main() -> int:
    """Write the file."""
    parser = argparse.ArgumentParser(
        prog="conformance.onefile", description="Write the suite as one file."
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="such as meshnode-conformance.pyz")
    parser.add_argument("--bare", action="store_true", help="without the libraries")
    options = parser.parse_args()
    build(options.file, bare=options.bare)
    print(f"{options.file}: {options.file.stat().st_size / 2**20:.1f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
