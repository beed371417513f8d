"""Regular expressions of a tokenizer: those of known models pass, those that explode do not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.model.patterns import PatternRefused, require_bounded_pattern

KNOWN = {
    "GPT-2": r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "Llama 3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "Qwen 2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "cl100k": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+|"
    r" ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    "o200k": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s+",
    "DeepSeek 3": "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|"
    r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "Bloom": " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+",
    "intersection": r"[\p{Han}]+|[\p{L}&&[^\p{Han}]]+",
    "groups of three digits": r"(?<=\d)(?=(?:\d{3})+(?!\d))",
    "spaces": r" {2,}",
    "flags": r"(?i)ab|c",
    "POSIX": r"[[:alpha:]_]+",
    "atomic": r"(?:(?>a+)b)+",
}


@pytest.mark.parametrize("name", KNOWN)
def test_patterns_of_known_models_pass(name: str) -> None:
    require_bounded_pattern(KNOWN[name])


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+$", "(a|a)+$", "(a|ab)*c", "(a?a)+b", "(a{1,3})+b", "((ab)*c)*", "(a*)*",
        "(?:a+){3,}", "(x+x+)+y",
        "(?:[a-z]+,?)+$", "(a+)+?b", "(?=(a+)+b)", "a{1,3}{2}", "a**", "(a{1,3}){1,9}",
        "(a)\\1", "\\k<x>", "(?<x>a\\g<x>?)", "(?R)", "(?~a)", "(?(1)a|b)", "(?x) a", "a{99999}",
        "(?:(?:a{100}){100})", "a*b*c*d*e*f", "(", ")", "[a", "[a[b]", "*", "(?", "\\", "(" * 50,
        "a" * 10_000,
    ],
)  # fmt: skip
def test_patterns_that_explode_or_are_not_understood_are_refused(pattern: str) -> None:
    with pytest.raises(PatternRefused):
        require_bounded_pattern(pattern)


@given(st.text("ab()[]{}|*+?\\^$.,:=!<>1pP-", max_size=40))
def test_any_text_is_accepted_or_refused(pattern: str) -> None:
    try:
        require_bounded_pattern(pattern)
    except PatternRefused:
        return
