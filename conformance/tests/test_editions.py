"""Editions: released ones never change, and a run scores what its edition has."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from conformance import editions
from conformance.catalogue import CatalogueError, Level, Profile, load
from conformance.editions import CURRENT, EDITIONS, as_scored, levels
from conformance.editions.__main__ import main
from conformance.judging.hooks import on, put
from conformance.judging.toy.node import SECOND, TOKEN
from conformance.judging.toy.serving import Serving
from conformance.tests.command import run
from conformance.tests.conftest import Judge
from conformance.verdict import Exit, Outcome, Standing

FOLDER = Path(editions.__file__).parent
# The digests of released editions: a claim made with one of them must stay true.
RELEASED = {
    1: "77cf095ed82caa20714e40a18b0a84d1a97901231827ee27b53cb862a2041366",
    2: "dfe8810b9b1d315d4c5048c58fb9d240da19a5cecfd3a9956cae4e7c4ba8b0b3",
    3: "2c901323494dbe87fc9da2195fd828b585180aba261abfe253c1ec54071011d1",
    4: "5b1dd342f9efad162156e46d9eb66abd51bdb869744770a901cc16d3b83da221",
    5: "e161e4346ca74057e121d4a2f29e7a83887bbcf085dfbcfa0e19bbedc8ba71b3",
    6: "4390dd4b4a9551a3fc84f401d017472a528bb5586e653384828bc0a074fa11de",
}  # fmt: skip
PROFILES = "daff11a8b193755773ef1efca971ca7b4f1b76104f2a1891f4ba584629f996a0"


def test_released_editions_never_change() -> None:
    assert set(RELEASED) == set(EDITIONS)
    for number, digest in RELEASED.items():
        found = hashlib.sha256((FOLDER / f"{number}.txt").read_bytes()).hexdigest()
        assert found == digest, f"edition {number} has been released: add to the next one"


def test_the_profiles_of_the_first_editions_never_change() -> None:
    found = hashlib.sha256((FOLDER / "profiles.txt").read_bytes()).hexdigest()
    assert found == PROFILES
    assert {ident for number in (1, 2) for ident in levels(number)} == {
        line.partition(" ")[0] for line in (FOLDER / "profiles.txt").read_text().splitlines()
    }


@pytest.mark.parametrize("edition", EDITIONS)
def test_an_edition_keeps_level_and_profile_of_a_requirement(edition: int) -> None:
    now = load()["DH-001"]
    moved = replace(now, level=Level.SHOULD, profile=Profile.GRPC, why="it has changed")
    kept = as_scored(moved, edition)
    assert kept is not None
    assert (kept.level, kept.profile) == (now.level, now.profile)
    assert as_scored(now, edition) is now


def test_an_edition_scores_nothing_that_came_later() -> None:
    later = replace(load()["DH-001"], since=3)
    assert as_scored(later, 2) is None
    assert as_scored(later, 3) is later
    assert as_scored(load()["PL-FWD-009"], 2) is None


def test_a_line_that_is_not_of_an_edition_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(editions, "WITHOUT_PROFILES", ())
    with pytest.raises(CatalogueError, match=r"1\.txt:1: 1 words after 'NA-AUTH-001'"):
        editions.scored.__wrapped__(1)


def test_every_edition_names_requirements_that_exist() -> None:
    for number in EDITIONS:
        assert set(levels(number)) <= set(load())


def test_the_catalogue_and_the_current_edition_agree_on_levels() -> None:
    for ident, level in levels(CURRENT).items():
        assert load()[ident].level is level, ident


def test_an_edition_is_frozen_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main() == 1
    assert "raise CURRENT first" in capsys.readouterr().err


def test_what_an_edition_does_not_have_fails_nothing(toy: Serving, judge: Judge) -> None:
    toy.node.http_hook = on("/api/v1/metrics", put("network.bytes_sent", -1))
    old, new = (judge("NA-SANE-014", "NA-SANE-015", edition=number) for number in (1, 2))
    toy.node.http_hook = on("/api/v1/metrics", put("rewards.earned_today", 10**9))
    older, newer = (judge("NA-SANE-015", edition=number) for number in (1, 2))
    assert old.ended() is Exit.CONFORMS
    assert older.ended() is Exit.CONFORMS
    result = next(item for item in older.results if item.requirement.id == "NA-SANE-015")
    assert (result.standing, result.outcome, result.scored) == (
        Standing.VIOLATED, Outcome.NOTE, False,
    )  # fmt: skip
    assert newer.ended() is Exit.VIOLATED
    assert new.ended() is Exit.VIOLATED


def test_a_level_is_that_of_the_edition(toy: Serving, judge: Judge) -> None:
    toy.node.http_hook = on("/api/v1/status", put("version", ""))
    run = judge("GEN-014", edition=1)
    result = next(item for item in run.results if item.requirement.id == "GEN-014")
    assert result.requirement.level is Level.SHOULD
    assert result.outcome is Outcome.WARN


@pytest.mark.usefixtures("elsewhere")
def test_a_required_share_and_a_required_profile_are_asked_for(
    toy: Serving, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert run(toy, "--token", TOKEN, "--require", "99%", "--out", str(out)) == 8
    said = capsys.readouterr().out
    assert "99.0% are required" in said
    assert f"edition {CURRENT}:" in said
    built = json.loads((out / "report.json").read_text())
    assert built["asked"]["proved"] < built["asked"]["must"]
    assert f"edition {CURRENT}: " in (out / "badge.svg").read_text()
    arguments = ("--profile", "training", "--require-profile", "grpc")
    assert run(toy, *arguments) == 8
    said = capsys.readouterr().out
    assert "nothing of the required profile grpc is proved" in said
    assert "not applicable:" in said
    assert run(toy, "--profile", "training", "--require-profile", "training") == 0
    assert run(toy, "--edition", "99") == 4
    assert SECOND not in said
