"""The reference node itself: the runs must prove every MUST, with none violated or inconclusive.

One node in one state cannot show everything. The first run is against a node that does not train;
four more are against the same node while it trains, and one during a round that is kept open, with
a gradient from a peer. The other runs are against nodes in states that exclude these.
"""

import shlex
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from conformance.catalogue import Level, Profile, load
from conformance.editions import DRAFT
from conformance.ended import Result, Run
from conformance.judging.nodes import (
    FIRST_ABSENT_SHARD,
    TOKEN,
    TRAINING,
    Rig,
    described,
    node,
    paying_key,
    rest,
    rig,
    train,
)
from conformance.judging.restarting import command
from conformance.judging.states import (
    accept_updates,
    hold,
    introduce,
    orderer,
    paid_holder,
    sign_gradient,
    strangers,
)
from conformance.peer.command import judged_as_client
from conformance.peer.peer import Peer, Setup
from conformance.run import Runner
from conformance.target import Target, documented_grpc_address, make_target
from conformance.verdict import Standing

BACKWARD = "a backward pass goes to members of a training, and the suite cannot sign as one"
NO_URL = "the node names no sender_url: what a holder says goes back along the call"
LOCKED = "what the second account stakes is locked for longer than a run"
UNSIGNED = "the node takes no gradient that nobody has signed"
# MUSTs that no run can prove, and why. The mutants and the toy client exercise all of them.
NOT_SHOWN: dict[str, str] = {
    "CL-MSG-002": BACKWARD,
    "PL-BWD-002": BACKWARD,
    "PL-BWD-003": BACKWARD,
    "PL-BWD-008": BACKWARD,
    "GR-PIPELINE-BACKWARD-RESPONSE-01": BACKWARD,
    "PL-BWD-004": BACKWARD,
    "PL-BWD-005": BACKWARD,
    "PL-BWD-009": BACKWARD,
    "PL-BWD-015": BACKWARD,
    "PL-BWD-020": BACKWARD,
    "PL-BWD-022": BACKWARD,
    "PL-BWD-023": BACKWARD,
    "PL-BWD-024": BACKWARD,
    "PL-BWD-025": BACKWARD,
    "CL-CODE-007": BACKWARD,
    "CL-CODE-008": BACKWARD,
    "GR-GOSSIP-005": UNSIGNED,
    "GR-GOSSIP-007": UNSIGNED,
    "DH-030": "the node learns of others only by calling them",
    "NA-WALLET-047": "the node refuses a transfer to an address that nobody uses",
    "GR-PIPELINE-BACKWARD-REQUEST-01": BACKWARD,
    "GR-PIPELINE-BACKWARD-REQUEST-02": BACKWARD,
    "GR-PIPELINE-BACKWARD-REQUEST-03": BACKWARD,
    "GR-PIPELINE-BACKWARD-REQUEST-05": BACKWARD,
    "CL-URL-001": NO_URL,
    "GR-PIPELINE-FORWARD-REQUEST-12": NO_URL,
    "GR-PIPELINE-FORWARD-REQUEST-05": "the node sends no attention mask: it sends no padding",
    "GR-PIPELINE-FORWARD-REQUEST-09": "source_shard is 0, which is not written",
    "CL-GOSSIP-001": "the peer's run has no gradient that another member has signed",
    "CL-GOSSIP-003": "the peer's run has no gradient that another member has signed",
    "LIM-001": "the node refuses an answer that is larger than one that was asked for can be",
    "NT-RULE-002": "a node that serves does not say that it is unavailable, or behind",
    "NT-RULE-030": "the blocks of the node name no request_id",
    "NT-RULE-054": "the blocks of the node name no request_id",
    "NT-RULE-040": "the blocks of the node name no request_id",
    "NT-RULE-061": "the blocks of the node name no request_id",
    "NT-RULE-063": "the blocks of the node name no request_id",
    "NT-RULE-093": "the blocks of the node name no request_id",
    "LIM-008": "the blocks of the node name no request_id",
    "NT-RULE-068": "the network identity of the node has no second pair within it",
    "NT-RULE-084": "the checkpoint of the node names no path: it has the weights in it",
    "NT-RULE-086": "the record of a request has nothing that is called its prompt",
    "NT-RULE-087": "the settings of the node do not declare where its losses are",
    "NA-WALLET-055": LOCKED,
    "NA-WALLET-059": LOCKED,
}
ORDERS = 3
MEETINGS, MEETING_S = 3, 90.0
ACCEPTED = "GR-GOSSIP-GRADIENT-RESPONSE-01"
RESTARTED = ("NA-PATCH-111", "NA-PATCH-112", "ST-009", "NA-SANE-022", "NA-WALLET-021")
SIGNED = [item.id for item in load().values() if "signer" in item.needs]
DIVERGED = ("TR-RULE-001", "TR-VERIFY-013", "TR-VERIFY-014")


# PipelineForward instead of SwarmForward, whose messages the document does not show.
DIRECT = {"MESHNODE_PIPELINE_CHAIN": "false"}
# Rounds that go on improving for as long as a run takes: a node stops where they make it worse.
PATIENT_TRAINING = {
    "MESHNODE_TRAINING_DILOCO_STEPS": "40",
    "MESHNODE_TRAINING_BATCH_SIZE": "2",
    "MESHNODE_TRAINING_LEARNING_RATE": "0.000002",
}
# As a client a node is waited for: for pings, and until it uses a peer again that it saw fail.
PATIENT_S = 900.0


@dataclass(frozen=True)
class Accepted:
    """One run against real nodes."""

    name: str
    run: Run
    within_s: float = 120.0


def run(folder: Path, port: int) -> list[Accepted]:
    """Run the whole suite against real nodes, then the parts that need other states."""
    return [
        *_whole(folder / "whole", port),
        _paid(folder / "paid", port + 4),
        _diverged(folder / "diverged", port + 6),
        _restarted(folder / "restarted", port + 8),
        _driving(folder / "driving", port),
        _training(folder / "training", port),
    ]


def _whole(folder: Path, port: int) -> list[Accepted]:
    runs: list[Accepted] = []
    with rig(folder, port, company=lambda url: orderer(folder / "c", port + 3, url)) as running:
        settings = {
            **running.settings, "allow": ["mutate", "spend", "intrusive"], "budget": 20.0,
            "edition": DRAFT,
        }  # fmt: skip
        target = make_target(settings)
        accept_updates(folder, running.urls[0])
        runs.append(Accepted("a node that does not train", Runner(target).run()))
        train(running)
        for seed in range(1, ORDERS + 1):
            shuffled = Runner(replace(target, seed=seed), shuffle=True).run()
            runs.append(Accepted(f"a node that trains, order {seed}", shuffled))
        runs.append(Accepted("the same, four checks at a time", Runner(target, parallel=4).run()))
        runs.append(_undeclared(target))
        runs.append(_signed(target, folder))
        runs.append(_handed(running, folder, settings))
        layers = f"0-{_layers(running.settings['url']) // 2 - 1}"
        options = ("--tracker", running.urls[0], "--layers", layers)
        variables = {**TRAINING, "MESHNODE_TRAINING_ENABLED": "true"}
        with node(folder / "half", port + 2, *options, variables=variables) as url:
            half = {
                **described(url),
                "url": url,
                "token": running.settings["token"],
                "profiles": ["pipeline", "grpc"],
                "allow": ["intrusive"],
            }
            half["pipeline"].update(
                last=False, training=False, past_entries=0, backward_metadata={"training": "1"}
            )
            runs.append(Accepted("a node of the first half", Runner(make_target(half)).run()))
    return runs


def _undeclared(target: Target) -> Accepted:
    """Run against a node that declares nothing but its address and its tokens."""
    profiles = frozenset({Profile.GRPC, Profile.DHT, Profile.PIPELINE})
    bare = replace(
        target, profiles=profiles, pipeline={}, field_map={}, edition=max(target.edition, DRAFT)
    )
    return Accepted("a node that declares nothing", Runner(bare).run())


def _signed(target: Target, folder: Path) -> Accepted:
    """Run with a signer, whose account is that of the folder's client, and another one."""
    key = folder / "client" / "client" / "key.json"
    keys = ["--key", str(key), "--other-key", str(paying_key(folder / "other", target.url))]
    signer = shlex.join([sys.executable, "-m", "tools.signer", *keys])
    finished = Runner(replace(target, signer=signer), only=SIGNED).run()
    return Accepted("a node whose operator has requests signed", finished)


def _handed(running: Rig, folder: Path, settings: dict[str, Any]) -> Accepted:
    """Run against a node with a gradient that a peer has signed for the node's current round.

    A node refuses the gradient while it does not know the peer; a new gradient is made then.
    """
    values, out = folder / "b" / "training" / "contribution.bin", folder / "gradient.bin"
    handed = {**settings, "profiles": ["grpc"], "allow": ["mutate"], "gradient": str(out)}
    ends = time.monotonic() + MEETING_S
    while True:
        sign_gradient(hold(running), maker=folder / "c", values=values, out=out)
        finished = Runner(make_target(handed)).run()
        proved = {item.requirement.id for item in finished.results if _proved(item)}
        if ACCEPTED in proved or time.monotonic() > ends:
            break
    # Otherwise the nodes would continue to compute, in a round that does not end.
    rest(running)
    return Accepted("a node that receives a peer's gradient", finished)


def _paid(folder: Path, port: int) -> Accepted:
    with paid_holder(folder, port) as url:
        target = make_target({"url": url, "token": TOKEN, "profiles": ["node-api"]})
        return Accepted("a holder with a proof, reading only", Runner(target).run())


def _diverged(folder: Path, port: int) -> Accepted:
    """Run against two nodes that have just met; if they agree too soon, two new ones meet."""
    for meeting in range(MEETINGS):
        finished, shown = _meet(folder / str(meeting), port)
        if shown:
            break
    return Accepted("two nodes that meet with different weights", finished)


def _meet(folder: Path, port: int) -> tuple[Run, bool]:
    """Run against two nodes repeatedly; return the run that shows everything, or the last one."""
    with strangers(folder, port) as (url, _):
        target = make_target({"url": url, "profiles": ["training"]})
        introduce(port, port + 1)
        ends = time.monotonic() + MEETING_S
        while True:
            finished = Runner(target, only=DIVERGED).run()
            proved = {item.requirement.id for item in finished.results if _proved(item)}
            shown = proved.issuperset(DIVERGED)
            if shown or time.monotonic() > ends:
                return finished, shown


def _restarted(folder: Path, port: int) -> Accepted:
    """Run against a node that is restarted in the middle, with what has to outlive that."""
    folder.mkdir(parents=True, exist_ok=True)
    keeper = folder / "keeper"
    with node(folder / "node", port, keeper=keeper) as url:
        settings = {
            **described(url), "url": url, "token": TOKEN, "profiles": ["node-api"],
            "allow": ["mutate", "intrusive"], "restart_command": shlex.join(command(keeper)),
        }  # fmt: skip
        finished = Runner(make_target({**settings, "edition": DRAFT}), only=RESTARTED).run()
    return Accepted("a node that is restarted", finished)


def _driving(folder: Path, port: int) -> Accepted:
    """Judge a node with half of the layers as a client of the peer, behind which the others are."""
    folder.mkdir(parents=True, exist_ok=True)
    with node(folder / "last", port, "--layers", "4-7") as behind:
        finished = _as_client(folder, port + 1, behind, ("--layers", "0-3"), DIRECT, sole=True)
    return Accepted("a node as a client, which needs the peer's layers", finished, PATIENT_S)


def _training(folder: Path, port: int) -> Accepted:
    """Judge a node that trains as a client of the peer, behind which another one trains."""
    folder.mkdir(parents=True, exist_ok=True)
    variables = {**TRAINING, **PATIENT_TRAINING, "MESHNODE_TRAINING_ENABLED": "true"}
    # The other one takes longer, so that no round is over before this one has sent something.
    slower = {**variables, "MESHNODE_TRAINING_DILOCO_STEPS": "120"}
    with node(folder / "other", port, variables=slower) as behind:
        # It has its model from the network, so that it asks the peer for weights as well.
        fetched = ("--model", "network")
        finished = _as_client(folder, port + 1, behind, fetched, variables, sole=False)
    return Accepted("a node as a client, which trains with the peer", finished, PATIENT_S)


def _as_client(
    folder: Path,
    port: int,
    behind: str,
    options: tuple[str, ...],
    variables: Mapping[str, str],
    *,
    sole: bool,
) -> Run:
    setup = Setup(behind=(behind, documented_grpc_address(behind)), sole=sole)
    with (
        Peer(setup) as peer,
        node(folder / "node", port, "--tracker", peer.url, *options, variables=variables) as url,
    ):
        allow = ["mutate", "spend", "intrusive"]
        target = make_target({"url": url, "token": TOKEN, "allow": allow, "edition": DRAFT})
        return Runner(judged_as_client(target), peer=peer).run()


def _layers(url: str) -> int:
    return int(described(url)["pipeline"]["absent_shard"]) - FIRST_ABSENT_SHARD


def _proved(item: Result) -> bool:
    return item.standing is Standing.PROVED


def proved_in(runs: list[Accepted]) -> dict[str, list[str]]:
    """Return the runs that have proved each MUST that has a check."""
    found: dict[str, list[str]] = {
        item.id: [] for item in load().values() if item.level is Level.MUST and item.check
    }
    for accepted in runs:
        for item in accepted.run.results:
            if _proved(item) and item.requirement.id in found:
                found[item.requirement.id].append(accepted.name)
    return found


def never_proved(runs: list[Accepted]) -> dict[str, str]:
    """Return the checked MUSTs that no run has proved, with a reason, or an empty string."""
    return {
        ident: NOT_SHOWN.get(ident, "") for ident, names in proved_in(runs).items() if not names
    }


def gaps(runs: list[Accepted]) -> list[str]:
    """Return a description of every gap in the runs."""
    found = []
    for accepted in runs:
        for item in accepted.run.results:
            bad = item.standing in (Standing.VIOLATED, Standing.INCONCLUSIVE)
            if bad and item.requirement.level is Level.MUST:
                found.append(
                    f"{accepted.name}: {item.requirement.id} {item.standing} {item.reason}"
                )
        if accepted.run.took_s > accepted.within_s:
            found.append(f"{accepted.name}: took {accepted.run.took_s:.0f} s")
        found += [f"{accepted.name}: left behind {item}" for item in accepted.run.residue]
    if runs:
        found += [f"{ident} was not proved" for ident, why in never_proved(runs).items() if not why]
    return found
