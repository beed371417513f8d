"""``meshnode doctor``: what is wrong with a node's surroundings, and what to do about it.

It changes nothing. With ``--accept`` it first takes the data folder as it is (decision 0140), which
is what an operator does after restoring a backup.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path

from meshnode.config import Config
from meshnode.datadir import DataDirLock
from meshnode.domain.errors import StartupError
from meshnode.sources import load_config


def add_doctor_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``meshnode doctor`` to those that all the node's commands have."""
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument(
        "--accept",
        action="store_true",
        help="take the data folder as it is, after a backup was restored or a file given up",
    )


def run_doctor_command(
    options: argparse.Namespace, flags: Mapping[str, str], toml_file: str | None, passphrase: str
) -> int:
    """Print the report; 1 if it has a fault, otherwise 0. StartupError if ``--accept`` fails."""
    config, error = _settings(flags, toml_file)
    if options.accept:
        for line in _accept(Path(config.data_dir)):
            if not options.json:
                print(f"accepted: {line}", flush=True)
    # Imported here because they import torch.
    from meshnode.doctor.checks import examine
    from meshnode.doctor.examination import Examination
    from meshnode.doctor.findings import Level, as_json, as_table, worst

    findings = examine(Examination(config, error, passphrase))
    print(as_json(findings) if options.json else as_table(findings), flush=True)
    return int(worst(findings) is Level.FAULT)


def _settings(flags: Mapping[str, str], toml_file: str | None) -> tuple[Config, str]:
    """The settings in force, or else the best that can be read, and what is wrong with them."""
    attempts: tuple[tuple[Mapping[str, str], Mapping[str, str], str | None, bool], ...] = (
        (flags, os.environ, toml_file, True),
        (flags, os.environ, toml_file, False),
        (flags, os.environ, None, False),
        (flags, {}, None, False),
        ({}, {}, None, False),
    )
    first = ""
    for given, environ, file, persisted in attempts:
        try:
            return load_config(given, environ, file, persisted=persisted), first
        except StartupError as error:
            first = first or str(error)
    raise StartupError(first)


def _accept(data_dir: Path) -> tuple[str, ...]:
    from meshnode.services.inventory import accept_folder

    if not data_dir.is_dir():
        raise StartupError(f"there is no data folder {data_dir}")
    lock = DataDirLock(data_dir)
    try:
        return accept_folder(data_dir) or ("nothing had changed",)
    finally:
        lock.release()
