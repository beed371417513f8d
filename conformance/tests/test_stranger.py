"""The stranger's node: its lists can be read, and name what they switch."""

import shutil

import pytest

from conformance.judging.stranger.judge import NODE, allowed, kinds, peculiarities

HAS_NODE = shutil.which("node") is not None


def test_peculiarities_are_listed_once_and_used() -> None:
    listed = peculiarities()
    assert len(listed) == len(set(listed)) == 81
    code = "".join(file.read_text(encoding="utf-8") for file in sorted(NODE.glob("*.js")))
    assert [ident for ident in listed if f"'{ident}'" not in code] == []


@pytest.mark.skipif(not HAS_NODE, reason="Node.js is not on the PATH")
def test_faults_have_kinds() -> None:
    found = kinds()
    assert len(found) == 602
    assert set(allowed()) < set(found)
    assert set(found.values()) == {
        "effects", "fields", "guards", "limits", "numbers", "refusals", "relations", "routes",
    }  # fmt: skip
