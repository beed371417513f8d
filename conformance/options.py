"""The options for a target, which the command line and the pytest plugin share."""

from pathlib import Path
from typing import Any

from conformance.catalogue import Profile
from conformance.editions import CURRENT, DRAFT


def add_target_options(parser: Any) -> None:
    """Add the options for the target and for what a run may do to it."""
    add = getattr(parser, "addoption", None) or parser.add_argument
    add("--config", metavar="FILE", help="default: conformance.toml, if it exists")
    add("--token", metavar="T", help="bearer token; better: CONFORMANCE_TOKEN in the environment")
    add("--expired-token", metavar="T", help="expired token; better: CONFORMANCE_EXPIRED_TOKEN")
    add("--gradient", metavar="FILE", help="a signed GossipGradientRequest that the node accepts")
    add(
        "--restart-command",
        metavar="CMD",
        help="restarts the node, for what has to outlive that; run once, with --allow intrusive",
    )
    add(
        "--signer",
        metavar="CMD",
        help="signs inference requests: CMD URL KIND prints one as JSON (see the README)",
    )
    add("--grpc", metavar="HOST:PORT", help="default: the HTTP port plus 1000")
    add(
        "--profile",
        action="append",
        choices=[item.value for item in Profile],
        help="judge this profile, instead of those that a probe finds; can be repeated",
    )
    add("--allow", metavar="EFFECTS", help="any of mutate,spend,intrusive; default: none")
    add("--budget", type=float, metavar="N", help="maximum to spend, in whole units")
    add(
        "--timeout",
        type=float,
        metavar="S",
        help="seconds to wait for an answer; inference has its own limit",
    )
    add("--examples", type=int, metavar="N", help="number of generated inputs for each exploration")
    add("--seed", type=int, metavar="N", help="seed of the generated inputs")
    add(
        "--edition",
        type=int,
        metavar="N",
        help=f"edition of the requirements that is scored; default: {CURRENT}, the latest;"
        f" {DRAFT} is the draft of the next one",
    )
    add(
        "--require",
        type=_share,
        metavar="SHARE",
        help="share of the MUSTs of the judged profiles that must be proved, such as 0.9 or 90%%",
    )
    add(
        "--require-profile",
        action="append",
        choices=[item.value for item in Profile],
        help="a profile of which something must be proved; can be repeated",
    )


def add_report_options(parser: Any) -> None:
    """Add the options for the reports of a run."""
    add = parser.add_argument
    add("--out", type=Path, metavar="DIR", help="folder for the reports")
    add("--baseline", type=Path, metavar="FILE", help="known failures")
    add("--notes", action="store_true", help="also show what was only observed")
    add("--quiet", action="store_true", help="show only the figures, and no progress")


def _share(text: str) -> float:
    number = text.removesuffix("%")
    return float(number) / (100 if text.endswith("%") else 1)
