"""The page of all commands, from the argument parser."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from meshnode import cli
from tools.reference.tables import code, sentence, table

COMMON = ("--config", "--data-dir")
"""Options that every command takes; the page says so once."""


def page() -> str:
    """The page."""
    parser = cli.command_parser()
    parts = [
        "# Commands\n\n"
        "`meshnode` is the same as `python -m meshnode`. Every command takes `--data-dir DIR` "
        "and `--config FILE`, refuses the\noptions of the node that it would ignore, and shows "
        "its own with `--help`.\n\n## The node\n\n"
        + sentence(parser.description or "")
        + "\n\n"
        + _options(parser, ())
    ]
    parts += [_command(name, text, one) for name, text, one in _commands(parser, "meshnode")]
    parts.append(
        "## Exit statuses\n\n"
        "| status | of the node | of commands for users of a chain |\n|---|---|---|\n"
        "| 0 | it was drained and has ended | done |\n"
        "| 1 | a service failed for good | refused; nothing is under way |\n"
        "| 2 | an error that the operator can fix, in one line | usage or configuration |\n"
        "| 3 | | the outcome is unknown |\n"
        "| 128 + signal | it was ended at once | |\n"
    )
    return "\n".join(parts)


def _commands(
    parser: argparse.ArgumentParser, name: str
) -> Iterator[tuple[str, str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            texts = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for word, inner in action.choices.items():
                yield f"{name} {word}", texts.get(word, ""), inner
                yield from _commands(inner, f"{name} {word}")


def _command(name: str, text: str, parser: argparse.ArgumentParser) -> str:
    operands = [
        action
        for action in parser._actions
        if not action.option_strings and not isinstance(action, argparse._SubParsersAction)
    ]
    usage = " ".join([name, *(_operand(action) for action in operands)])
    return f"## {code(usage)}\n\n{sentence(text)}\n\n" + _options(parser, COMMON)


def _operand(action: argparse.Action) -> str:
    shown = str(action.metavar or action.dest)
    return f"[{shown}]" if action.nargs == "?" else shown


def _options(parser: argparse.ArgumentParser, left_out: tuple[str, ...]) -> str:
    rows = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction | argparse._HelpAction):
            continue
        if action.help == argparse.SUPPRESS or set(action.option_strings) & set(left_out):
            continue
        names = ", ".join(action.option_strings) or _operand(action)
        if action.option_strings and action.nargs != 0:
            names += f" {action.metavar or action.dest.upper()}"
        needed = " Required." if action.option_strings and action.required else ""
        rows.append((code(names), sentence(action.help or "") + needed))
    return table(("option", "meaning"), rows) if rows else ""
