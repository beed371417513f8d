"""The catalogue keeps its own rules, names existing checks, and matches the messages."""

import re

import pytest

from conformance import coverage, messages, passive
from conformance.catalogue import CatalogueError, Level, Origin, load, parse_file
from conformance.coverage import TITLES
from conformance.suite import checks

HEAD = "section: '1'\ndefaults: {level: MUST, origin: stated, profile: grpc, effect: read}\n"


def test_every_entry_names_a_check_that_declares_it_or_says_why_not() -> None:
    for item in load().values():
        if item.check is None:
            assert item.unchecked or item.origin is Origin.SILENT, item.id
        elif item.check in passive.CHECKS:
            assert item.id in passive.CHECKS[item.check], item.id
        else:
            assert item.id in checks()[item.check].proves, item.id


def test_every_check_is_named_by_an_entry_and_declares_only_entries() -> None:
    known = load()
    for name, check in checks().items():
        assert check.own, name
        assert check.proves <= set(known), name
        assert check.summary, name


def test_the_entries_of_one_check_ask_the_same_of_a_target() -> None:
    for name, check in checks().items():
        assert len({item.effect for item in check.own}) == 1, name
        assert len({item.needs for item in check.own}) == 1, name
        assert len({item.profile for item in check.own}) == 1, name


def test_ids_are_made_alike() -> None:
    for ident in load():
        assert re.fullmatch(r"[A-Z]{2,4}(-[A-Z]+)*-\d{2,3}", ident), ident


def test_every_section_of_the_document_that_says_something_is_covered() -> None:
    assert {item.section for item in load().values()} == set(TITLES)


def test_texts_are_sentences_of_their_own() -> None:
    texts = [item.text for item in load().values()]
    assert len(set(texts)) == len(texts)
    for text in texts:
        assert len(text) < 160, text


def test_presence_and_type_of_a_field_are_two_entries() -> None:
    aspects: dict[tuple[str, str], set[str]] = {}
    for item in load().values():
        if item.field:
            aspects.setdefault((item.field.of, item.field.path), set()).add(
                "present" if item.field.aspect == "present" else "type"
            )
    assert aspects
    assert all(found == {"present", "type"} for found in aspects.values())


def test_every_field_of_every_message_is_an_entry_with_its_number_and_type() -> None:
    kinds = {1: "double", 3: "int64", 5: "int32", 8: "bool", 9: "string", 12: "bytes"}
    described = {}
    for name, message in messages.MESSAGES.items():
        for field in message.DESCRIPTOR.fields:
            if field.message_type is None:
                kind = kinds[field.type]
            elif field.message_type.GetOptions().map_entry:
                kind = "map<string,bytes>"
            else:
                kind = field.message_type.name
            repeated = bool(field.is_repeated) and not kind.startswith("map")
            described[name, field.name] = (field.number, kind, repeated)
    listed = {
        (rule.name, rule.field): (rule.number, rule.type, rule.repeated)
        for item in load().values()
        if (rule := item.message) is not None
    }
    assert listed == described


def test_coverage_is_up_to_date() -> None:
    written = coverage.FILE.read_text(encoding="utf-8")
    assert written == coverage.render(), "run python -m conformance.coverage"


@pytest.mark.parametrize(
    ("entry", "complaint"),
    [
        ("{id: X-001, text: A., check: c, origin: derived}", "only a stated"),
        ("{id: X-001, text: A., origin: silent, level: SHOULD}", "is OBSERVE"),
        ("{id: X-001, text: A.}", "neither a check"),
        ("{id: X-001, text: A., check: c, unchecked: r}", "and a reason"),
        ("{id: X-001, text: A., check: c, needs: [luck]}", "unknown needs"),
        ("{id: X-001, text: A., check: c, colour: red}", "unknown keys"),
        ("{id: X-001, text: A., check: c, level: OUGHT}", "OUGHT"),
        ("{id: X-001, text: A, check: c}", "a sentence"),
        ("{id: X-001, text: A., check: c, id: X-002}", "twice"),
        ("{id: X-001, text: A., check: c, field: {of: s, path: p, is: text}}", "unknown type"),
    ],
)
def test_a_bad_entry_is_refused(entry: str, complaint: str) -> None:
    with pytest.raises(CatalogueError, match=complaint):
        parse_file(f"{HEAD}requirements:\n- {entry}\n", "x.yaml")


def test_a_file_with_other_keys_is_refused() -> None:
    with pytest.raises(CatalogueError, match="exactly the keys"):
        parse_file(HEAD + "requirement: []\n", "x.yaml")


def test_musts_are_stated_and_silence_is_never_a_demand() -> None:
    for item in load().values():
        assert item.level is not Level.MUST or item.origin is Origin.STATED
        assert item.origin is not Origin.SILENT or item.level is Level.OBSERVE
