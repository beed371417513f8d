"""The tokenizer of a GGUF file, as the document of a ``tokenizer.json``.

GGUF files have the vocabulary, not the steps around it. The steps follow from two names in the
metadata: ``tokenizer.ggml.model`` (``gpt2`` for byte-level BPE with merges, ``llama`` for
SentencePiece with scores) and, for the first, ``tokenizer.ggml.pre``, which names how texts are cut
into words. What a name means is defined by llama.cpp.

Invariant: a name that is not in the tables is refused, because a text that is cut otherwise has
other tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from meshnode.model.documents import ModelUnreadable

_PREFIX = "tokenizer.ggml."
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = 1, 2, 3, 4, 5, 6
_KINDS = (_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE)
_SPACE_MARK = "\u2581"

_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = (
    _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _SPACES
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_START = r"[^\r\n\p{L}\p{N}]?"
_GPT4O = (
    rf"{_START}{_UPPER}*{_LOWER}+{_CONTRACTIONS}?|{_START}{_UPPER}+{_LOWER}*{_CONTRACTIONS}?|"
    rf"\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
)
_TEKKEN = (
    rf"{_START}{_UPPER}*{_LOWER}+|{_START}{_UPPER}+{_LOWER}*|"
    rf"\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
)
_DIGIT = r"\p{N}"

_CUTS: Mapping[str, Sequence[str]] = {
    "default": (r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]"),
    "gpt-2": (_GPT2,),
    "olmo": (_GPT2,),
    "mpt": (_GPT2,),
    "smollm": (_DIGIT, _GPT2),
    "starcoder": (_DIGIT, _GPT2),
    "refact": (_DIGIT, _GPT2),
    "llama-bpe": (_LLAMA3,),
    "llama3": (_LLAMA3,),
    "llama-v3": (_LLAMA3,),
    "dbrx": (_LLAMA3,),
    "smaug-bpe": (_LLAMA3,),
    "qwen2": (_QWEN2,),
    "gpt-4o": (_GPT4O,),
    "llama4": (_GPT4O,),
    "tekken": (_TEKKEN,),
}
"""How each pre-tokenizer cuts a text: patterns that are applied one after another."""
_WHOLE_WORDS_FIRST = frozenset({"llama-bpe", "llama3", "llama-v3", "tekken"})
"""Pre-tokenizers after which a word of the vocabulary is taken without merging."""
_BEGINS = frozenset({"llama-bpe", "llama3", "llama-v3", "tekken"})
"""Pre-tokenizers whose models expect a beginning token unless the metadata says otherwise."""


class GgufTokenizer:
    """The vocabulary of a GGUF file. Raises ModelUnreadable for what it cannot be."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self._metadata = metadata
        self.tokens: list[str] = self._list("tokens", str)
        self._kinds: list[int] = self._list("token_type", int, default=[_NORMAL] * len(self.tokens))
        if len(self._kinds) != len(self.tokens) or not set(self._kinds) <= set(_KINDS):
            raise ModelUnreadable("its token types do not fit its vocabulary")
        self._model = str(self._value("model", ""))
        if self._model not in ("gpt2", "llama"):
            raise ModelUnreadable(
                f"its tokenizer is of the kind {self._model!r}; gpt2 and llama are read"
            )

    def document(self) -> dict[str, Any]:
        """The object of a ``tokenizer.json``."""
        is_bpe = self._model == "gpt2"
        return {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [
                {
                    "id": token_id,
                    "content": token,
                    "single_word": False,
                    "lstrip": False,
                    "rstrip": False,
                    "normalized": False,
                    "special": kind != _USER_DEFINED,
                }
                for token_id, (token, kind) in enumerate(zip(self.tokens, self._kinds, strict=True))
                if kind in (_CONTROL, _USER_DEFINED) or (kind == _UNKNOWN and not is_bpe)
            ],
            "post_processor": self._post_processor(),
            **(self._byte_level() if is_bpe else self._sentence_piece()),
        }

    def token(self, name: str) -> str | None:
        """The text of a special token: ``bos``, ``eos``, ``unknown`` or ``padding``."""
        token_id = self.token_id(name)
        return None if token_id is None else self.tokens[token_id]

    def token_id(self, name: str) -> int | None:
        """The id of a special token, by its name in the metadata."""
        value = self._value(f"{name}_token_id", None)
        if value is None or not isinstance(value, int) or not 0 <= value < len(self.tokens):
            return None
        return value

    def control_ids(self, tokens: Sequence[str]) -> list[int]:
        """The ids of those of ``tokens`` that are control tokens here."""
        wanted = set(tokens)
        places = enumerate(zip(self.tokens, self._kinds, strict=True))
        return [at for at, (token, kind) in places if kind == _CONTROL and token in wanted]

    @property
    def adds_bos(self) -> bool:
        """Whether prompts begin with the beginning token."""
        pre = self._value("pre", "default")
        default = self._model == "llama" or pre in _BEGINS
        return bool(self._value("add_bos_token", default)) and self.token_id("bos") is not None

    def _byte_level(self) -> dict[str, Any]:
        pre = str(self._value("pre", "default"))
        if pre not in _CUTS:
            raise ModelUnreadable(
                f"its pre-tokenizer {pre!r} is not known; these are: {', '.join(_CUTS)}"
            )
        splits = [
            {
                "type": "Split",
                "pattern": {"Regex": pattern},
                "behavior": "Isolated",
                "invert": False,
            }
            for pattern in _CUTS[pre]
        ]
        spelled = {"add_prefix_space": False, "trim_offsets": True, "use_regex": False}
        merges = [_pair(merge) for merge in self._list("merges", str)]
        return {
            "normalizer": None,
            "pre_tokenizer": {
                "type": "Sequence",
                "pretokenizers": [*splits, {"type": "ByteLevel", **spelled}],
            },
            "decoder": {"type": "ByteLevel", **spelled},
            "model": {
                **_bpe(self.tokens, merges),
                "ignore_merges": pre in _WHOLE_WORDS_FIRST,
            },
        }

    def _sentence_piece(self) -> dict[str, Any]:
        scores: list[float] = self._list("scores", float)
        if len(scores) != len(self.tokens):
            raise ModelUnreadable("its token scores do not fit its vocabulary")
        mark = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE_MARK}
        prefixed = bool(self._value("add_space_prefix", True))
        begin = [{"type": "Prepend", "prepend": _SPACE_MARK}] if prefixed else []
        strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if prefixed else []
        unmark = {"type": "Replace", "pattern": {"String": _SPACE_MARK}, "content": " "}
        return {
            "normalizer": {"type": "Sequence", "normalizers": [*begin, mark]},
            "pre_tokenizer": None,
            "decoder": {
                "type": "Sequence",
                "decoders": [unmark, {"type": "ByteFallback"}, {"type": "Fuse"}, *strip],
            },
            "model": {
                **_bpe(self.tokens, list(self._merges_by_score(scores))),
                "unk_token": self.token("unknown"),
                "fuse_unk": True,
                "byte_fallback": True,
            },
        }

    def _merges_by_score(self, scores: Sequence[float]) -> Iterator[tuple[str, str]]:
        """All pairs of pieces that make a piece, the best piece first.

        SentencePiece always joins the pair that makes the piece of the highest score.
        """
        ids = {token: at for at, token in enumerate(self.tokens)}
        pieces = [at for at, kind in enumerate(self._kinds) if kind in (_NORMAL, _UNUSED)]
        for at in sorted(pieces, key=lambda at: -scores[at]):
            token = self.tokens[at]
            pairs = [(token[:cut], token[cut:]) for cut in range(1, len(token))]
            known = [pair for pair in pairs if pair[0] in ids and pair[1] in ids]
            yield from sorted(known, key=lambda pair: (ids[pair[0]], ids[pair[1]]))

    def _post_processor(self) -> dict[str, Any] | None:
        bos = self.token_id("bos")
        if not self.adds_bos or bos is None:
            return None
        name = self.tokens[bos]
        begin = {"SpecialToken": {"id": name, "type_id": 0}}
        first, second = ({"Sequence": {"id": one, "type_id": 0}} for one in "AB")
        return {
            "type": "TemplateProcessing",
            "single": [begin, first],
            "pair": [begin, first, second],
            "special_tokens": {name: {"id": name, "ids": [bos], "tokens": [name]}},
        }

    def _value(self, name: str, default: object) -> object:
        return self._metadata.get(_PREFIX + name, default)

    def _list(self, name: str, of: type, default: list[Any] | None = None) -> list[Any]:
        values = self._value(name, default)
        if not isinstance(values, list) or not all(isinstance(value, of) for value in values):
            raise ModelUnreadable(f"{_PREFIX}{name} is missing or not a list of {of.__name__}")
        return values


def _bpe(tokens: Sequence[str], merges: list[tuple[str, str]]) -> dict[str, Any]:
    vocabulary = {token: at for at, token in enumerate(tokens)}
    if len(vocabulary) < len(tokens):
        raise ModelUnreadable("its vocabulary has a token twice")
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": vocabulary,
        "merges": [list(pair) for pair in merges],
    }


def _pair(merge: str) -> tuple[str, str]:
    left, _, right = merge.partition(" ")
    if not left or not right:
        raise ModelUnreadable(f"its merge {merge!r} has not two sides")
    return left, right
