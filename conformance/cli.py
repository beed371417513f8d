"""`meshnode-conformance`: run, peer, sut, list, explain, probe, report, baseline, replay, proto.

Invariants: the exit code is one of `verdict.Exit`; results go to standard output, everything else
to standard error; no token is ever printed.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

from conformance import __version__, baseline, catalogue, replay, results, session
from conformance.catalogue import Effect, Profile
from conformance.compiled import AVAILABLE, NO_GRPC
from conformance.options import add_report_options, add_target_options
from conformance.peer.callback import listening
from conformance.peer.command import (
    add_options,
    invitation,
    judged_as_client,
    make_setup,
    open_peer,
)
from conformance.probe import probe, propose
from conformance.report import badge, compare, document, html, junit, text
from conformance.suite import checks
from conformance.sut import command as sut_command
from conformance.target import BadConfiguration, make_target
from conformance.verdict import EXIT_CODES, Exit, Outcome

STORAGE = "HYPOTHESIS_STORAGE_DIRECTORY"
FORMS: dict[str, Callable[[dict[str, Any]], str]] = {
    "text": text.render,
    "junit": junit.render,
    "html": html.render,
    "badge": badge.render,
}


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    # Before the checks are imported, or Hypothesis would keep its tables in the current folder.
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    os.environ.setdefault(STORAGE, os.path.join(cache, "meshnode-conformance"))
    parser = _parser()
    options, rest = parser.parse_known_args(arguments)
    # argparse accepts no ids after an option that follows the URL.
    if rest and (
        options.command not in (_run, _peer) or any(word.startswith("-") for word in rest)
    ):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:
        options.ids += rest
    try:
        code: int = options.command(options)
    except (BadConfiguration, catalogue.CatalogueError) as error:
        print(f"meshnode-conformance: {error}", file=sys.stderr)
        fault = isinstance(error, catalogue.CatalogueError)
        return EXIT_CODES[Exit.SUITE_FAULT if fault else Exit.CONFIGURATION]
    except results.BadResult as error:
        print(f"meshnode-conformance: not published: {error}", file=sys.stderr)
        return EXIT_CODES[Exit.CONFIGURATION]
    except KeyboardInterrupt:
        return EXIT_CODES[Exit.INTERRUPTED]
    except BrokenPipeError:
        # The reader has closed the pipe; discard what is still buffered.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_CODES[Exit.INTERRUPTED]
    return code


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        """Exit with the code for an invalid configuration; argparse's own means an interrupt."""
        self.print_usage(sys.stderr)
        self.exit(EXIT_CODES[Exit.CONFIGURATION], f"{self.prog}: {message}\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="meshnode-conformance", description="Judges a node of a distributed model network."
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=_Parser)

    command = commands.add_parser("run", help="judge a node")
    command.add_argument("url", nargs="?", help="http://HOST:PORT of the node")
    command.add_argument("ids", nargs="*", metavar="ID", help="requirements to judge; default: all")
    add_target_options(command)
    session.add_run_options(command)
    command.add_argument(
        "--listen", metavar="HOST:PORT",
        help="where the node reaches the suite, for what it sends back; gRPC at the port plus 1000;"
        " default: free ports of this machine, if the node is on it",
    )  # fmt: skip
    command.set_defaults(command=_run)

    command = commands.add_parser("peer", help="judge a node as a client, being its peer")
    add_options(command)
    add_report_options(command)
    command.set_defaults(command=_peer, parallel=1, shuffle=False)

    command = commands.add_parser("sut", help="install, start and judge a known implementation")
    sut_command.add_options(command)
    command.set_defaults(command=sut_command.run)

    command = commands.add_parser("list", help="list the requirements")
    command.add_argument("--profile", choices=[item.value for item in Profile])
    command.add_argument("--level", choices=[item.value for item in catalogue.Level])
    command.add_argument("--section")
    command.add_argument("--json", action="store_true", dest="as_json")
    command.set_defaults(command=_list)

    command = commands.add_parser("explain", help="show everything about a requirement")
    command.add_argument("ids", nargs="+", metavar="ID")
    command.set_defaults(command=_explain)

    command = commands.add_parser("probe", help="probe a node and propose a conformance.toml")
    command.add_argument("url")
    command.add_argument("--grpc", metavar="HOST:PORT")
    command.set_defaults(command=_probe)

    command = commands.add_parser("report", help="show the report of a run again")
    command.add_argument("folder", type=Path, metavar="DIR")
    command.add_argument("--format", choices=sorted(FORMS), default="text")
    command.add_argument(
        "--against", type=Path, metavar="OLD", help="show what has changed since that report"
    )
    command.add_argument(
        "--publish", type=Path, metavar="FOLDER", help="add the report to a table of results"
    )
    command.add_argument("--name", default="", help="of the implementation, to publish it")
    command.add_argument("--version", default="", help="of the implementation, to publish it")
    command.add_argument("--how", default="", help="how it was started, to publish it")
    command.set_defaults(command=_report)

    command = commands.add_parser("replay", help="send exchanges of a run again")
    command.add_argument("folder", type=Path, metavar="DIR")
    command.add_argument(
        "numbers", nargs="+", type=int, metavar="N", help="number of an exchange in the report"
    )
    command.add_argument("--token", metavar="T", help="better: CONFORMANCE_TOKEN")
    command.add_argument("--expired-token", metavar="T", help="better: CONFORMANCE_EXPIRED_TOKEN")
    command.add_argument("--timeout", type=float, metavar="S", default=60.0)
    command.set_defaults(command=_replay)

    command = commands.add_parser("proto", help="print the folder of node.proto, for grpcurl")
    command.set_defaults(command=_proto)

    command = commands.add_parser("baseline", help="make a baseline of a run's failures")
    command.add_argument("folder", type=Path, metavar="DIR")
    command.set_defaults(command=_baseline)
    return parser


def _run(options: argparse.Namespace) -> int:
    # `run ID` works if conformance.toml has the URL. No id contains a colon or a slash.
    if options.url and not set(":/") & set(options.url):
        options.ids.insert(0, options.url)
        options.url = None
    _known(options.ids)
    target = session.target_from(options, os.environ)
    with listening(target, options.listen) as peer:
        return session.conclude(session.judge(target, options, peer))


def _peer(options: argparse.Namespace) -> int:
    _known(options.ids)
    target = judged_as_client(session.declared(options, os.environ))
    if not AVAILABLE:
        raise BadConfiguration(NO_GRPC)
    with open_peer(make_setup(options, target)) as peer:
        print(invitation(peer), file=sys.stderr, flush=True)
        return session.conclude(session.judge(target, options, peer))


def _known(idents: list[str]) -> None:
    unknown = [ident for ident in idents if ident not in catalogue.load()]
    if unknown:
        raise BadConfiguration(f"no such requirement: {', '.join(unknown)}")


def _list(options: argparse.Namespace) -> int:
    chosen = [
        item
        for item in catalogue.load().values()
        if options.profile in (None, item.profile.value)
        and options.level in (None, item.level.value)
        and options.section in (None, item.section)
    ]
    if options.as_json:
        print(json.dumps([_plain(item) for item in chosen], indent=1, ensure_ascii=False))
        return 0
    for item in chosen:
        mark = " " if item.check else "-"
        print(f"{mark} {item.id:32} {item.level.value:8} {item.profile.value:10} {item.text}")
    print(f"{len(chosen)} requirements; those marked - have no check", file=sys.stderr)
    return 0


def _plain(item: catalogue.Requirement) -> dict[str, Any]:
    return {
        "id": item.id,
        "section": item.section,
        "level": item.level.value,
        "origin": item.origin.value,
        "profile": item.profile.value,
        "effect": str(item.effect),
        "needs": sorted(item.needs),
        "text": item.text,
        "check": item.check,
        "unchecked": item.unchecked,
        "shown_when": item.shown_when,
    }


def _explain(options: argparse.Namespace) -> int:
    known = catalogue.load()
    for ident in options.ids:
        if ident not in known:
            raise BadConfiguration(f"no such requirement: {ident}")
        item = known[ident]
        print(f"{item.id}  section {item.section}  {item.level.value}  ({item.origin.value})")
        print(f"    {item.text}")
        if item.why:
            print(f"    no MUST, because {item.why}")
        print(f"    profile {item.profile.value}, effect {item.effect}", end="")
        print(f", needs {', '.join(sorted(item.needs))}" if item.needs else "")
        if item.check:
            check = checks().get(item.check)
            print(f"    check {item.check}: {check.summary if check else 'on every answer'}")
            if item.shown_when:
                print(f"    shown only {item.shown_when}")
        elif item.unchecked:
            print(f"    unchecked: {item.unchecked}")
        else:
            print("    the document leaves it open; reported, never judged")
        if item.level is catalogue.Level.MUST and item.effect is not Effect.READ:
            print(f"    judged only with --allow {item.effect}")
    return 0


def _probe(options: argparse.Namespace) -> int:
    settings = {"url": options.url, "grpc": options.grpc}
    target = make_target({name: value for name, value in settings.items() if value})
    proposal = probe(target)
    for look in proposal.looks:
        print(look, file=sys.stderr)
    print(propose(target, proposal), end="")
    return 0 if proposal.profiles else EXIT_CODES[Exit.NOTHING_PROVED]


def read_report(folder: Path) -> dict[str, Any]:
    """Read the `report.json` of a run."""
    path = folder / "report.json" if folder.is_dir() else folder
    try:
        built: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadConfiguration(f"{path}: {error}") from None
    if not isinstance(built, dict) or built.get("format") != document.FORMAT:
        raise BadConfiguration(f"{path}: not a report of format {document.FORMAT}")
    report: dict[str, Any] = built
    return report


def _report(options: argparse.Namespace) -> int:
    built = read_report(options.folder)
    if options.publish:
        of = results.Implementation(options.name, options.version, options.how)
        if not all((of.name, of.version, of.how)):
            raise BadConfiguration("--publish needs --name, --version and --how")
        for path in results.publish(built, of, options.publish):
            print(path)
        return 0
    if options.against:
        print(compare.render(read_report(options.against), built), end="")
    else:
        print(FORMS[options.format](built), end="")
    code: int = built["conclusion"]["exit"]
    return code


def _replay(options: argparse.Namespace) -> int:
    tokens = {
        "TOKEN": options.token or os.environ.get(session.ENVIRONMENT["token"]),
        "EXPIRED_TOKEN": options.expired_token
        or os.environ.get(session.ENVIRONMENT["expired_token"]),
        "SECOND_TOKEN": os.environ.get(session.ENVIRONMENT["second_token"]),
    }
    answered = True
    for number in options.numbers:
        recorded = replay.find(options.folder / session.LOG, number)
        again = replay.send(recorded, tokens, options.timeout)
        answered &= again.fault is None
        print(f"#{number}  {recorded['reproduce']}")
        print(f"    then  {replay.summary(recorded['response'], recorded['fault'])}")
        print(f"    now   {replay.summary(again.response, again.fault)}")
    return 0 if answered else EXIT_CODES[Exit.INCONCLUSIVE]


def _proto(options: argparse.Namespace) -> int:
    name = "node.proto"
    folder = resources.files("conformance") / "proto"
    if not isinstance(folder, Path):
        # grpcurl reads no file within another file.
        text, folder = (folder / name).read_text(encoding="utf-8"), sut_command.cache() / "proto"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    print(folder)
    return 0


def _baseline(options: argparse.Namespace) -> int:
    built = read_report(options.folder)
    failed = [
        (item["id"], item["reason"])
        for item in built["requirements"]
        if item["outcome"] == Outcome.FAIL.value
    ]
    print(baseline.write(failed), end="")
    return 0
