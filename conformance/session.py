"""One run of the suite from a command line: its options, its target, its reports.

Invariants: results go to standard output, everything else to standard error; no token is printed.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from conformance import baseline
from conformance.catalogue import Profile
from conformance.compiled import AVAILABLE, NO_GRPC
from conformance.interface import page
from conformance.options import add_report_options
from conformance.peer.peer import Peer
from conformance.probe import SERVICE_PROFILES, probe
from conformance.progress import no_progress, show_progress
from conformance.report import badge, document, html, junit, text
from conformance.run import Runner
from conformance.target import BadConfiguration, Target, make_target, read_file

LOG = "exchanges.jsonl"
AS_A_CLIENT = {Profile.PEER: "`meshnode-conformance peer` judges a node as a client"}
NOT_ASKED = "the configuration or --profile leaves this profile out"
DEFAULT_FILE = Path("conformance.toml")
ENVIRONMENT = {
    "token": "CONFORMANCE_TOKEN",
    "expired_token": "CONFORMANCE_EXPIRED_TOKEN",
    "second_token": "CONFORMANCE_SECOND_TOKEN",
}


def add_run_options(command: argparse.ArgumentParser) -> None:
    """Add the options of how a run goes and what it leaves."""
    add_report_options(command)
    command.add_argument(
        "-n",
        type=int,
        default=1,
        metavar="N",
        dest="parallel",
        help="how many reading checks run at a time",
    )
    command.add_argument(
        "--shuffle", action="store_true", help="run the checks in an order derived from --seed"
    )


def target_from(options: Any, environment: Mapping[str, str]) -> Target:
    """Make the target from the options, then the environment, then the file; probe if need be."""
    return asked(declared(options, environment))


def declared(options: Any, environment: Mapping[str, str]) -> Target:
    """Make the target from the options, then the environment, then the file."""
    path = Path(options.config) if options.config else DEFAULT_FILE
    settings = read_file(path) if options.config or path.exists() else {}
    for name, variable in ENVIRONMENT.items():
        if environment.get(variable):
            settings[name] = environment[variable]
    settings.update(given(options))
    return make_target(settings)


def given(options: Any) -> dict[str, Any]:
    """Return the settings that options give, without those that are absent."""
    values = {
        "url": options.url,
        "token": options.token,
        "expired_token": options.expired_token,
        "gradient": options.gradient,
        "restart_command": options.restart_command,
        "signer": options.signer,
        "grpc": options.grpc,
        "profiles": options.profile,
        "allow": [name for name in options.allow.split(",") if name] if options.allow else None,
        "budget": options.budget,
        "timeout_s": options.timeout,
        "examples": options.examples,
        "seed": options.seed,
        "edition": options.edition,
        "require": options.require,
        "require_profiles": options.require_profile,
    }
    return {name: value for name, value in values.items() if value is not None}


def asked(target: Target) -> Target:
    """Return the target with its declared profiles, or with those that a probe finds."""
    if target.profiles & SERVICE_PROFILES and not AVAILABLE:
        raise BadConfiguration(NO_GRPC)
    if target.profiles:
        return replace(target, absent={**dict.fromkeys(Profile, NOT_ASKED), **AS_A_CLIENT})
    return with_probe(target)


def with_probe(target: Target) -> Target:
    """Return the target with the profiles and the gRPC address that a probe finds."""
    proposal = probe(target)
    if not proposal.profiles:
        raise BadConfiguration(
            f"nothing at {target.url} answers as the document describes: "
            + "; ".join(proposal.looks[:2])
        )
    return replace(
        target,
        profiles=proposal.profiles,
        grpc=proposal.grpc,
        absent={**proposal.absent, **AS_A_CLIENT},
    )


def judge(target: Target, options: argparse.Namespace, peer: Peer | None = None) -> dict[str, Any]:
    """Judge a target, write and print its reports, and return the document of the run."""
    known = baseline.read(options.baseline) if options.baseline else None
    out: Path | None = options.out
    if out:
        out.mkdir(parents=True, exist_ok=True)
    runner = Runner(
        target,
        log=out / LOG if out else None,
        only=getattr(options, "ids", ()),
        baseline=known,
        progress=no_progress if options.quiet or not sys.stderr.isatty() else show_progress,
        parallel=max(1, options.parallel),
        shuffle=options.shuffle,
        peer=peer,
    )
    built = document.build(runner.run())
    if out:
        write_reports(built, out)
    shown = text.render(built, colour=sys.stdout.isatty(), notes=options.notes)
    print(shown if not options.quiet else "\n".join(shown.splitlines()[-5:]))
    return built


def conclude(built: dict[str, Any]) -> int:
    """Return the exit code of a run."""
    code: int = built["conclusion"]["exit"]
    return code


def write_reports(built: dict[str, Any], out: Path) -> None:
    """Write all formats of the report into a folder."""
    files = {
        "report.json": json.dumps(built, indent=1, ensure_ascii=False) + "\n",
        "junit.xml": junit.render(built),
        "report.html": html.render(built),
        "badge.svg": badge.render(built),
        page.FILE: page.render(),
    }
    for name, content in files.items():
        (out / name).write_text(content, encoding="utf-8")
