"""Inputs that Hypothesis generates: inference bodies inside and outside the documented ranges.

Invariant: the document allows every parameter of a body from `good_bodies`; each body from
`bad_bodies` violates exactly one sentence.
"""

from dataclasses import dataclass

from hypothesis import strategies as st

from conformance.strictjson import Json

# Short outputs, since the runs spend somebody's money.
MAX_TOKENS = 12

plain_prompts = st.sampled_from(
    ["Hello", "Once upon a time", "The sky is", "1, 2, 3,", "List three colours:"]
)
# Surrogates cannot be encoded as UTF-8; NUL is left out, since many tokenisers stop there.
any_prompts = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=60
).filter(lambda text: bool(text.strip()))


# What programs that put texts together by hand get wrong.
PROMPTS = ('He said "yes",\nand left.\t{0} %s \\n', "Größe 日本語 🙂")
LINES = ("One line,\r\nand another.",)
# As long as some sentences, in letters that take two, three and four bytes each.
FOREIGN = ("Москва - большой город. " * 4, "東京は大きな都市です。" * 8, "🙂🙃🚀" * 20)

_OPTIONAL: dict[str, st.SearchStrategy[Json]] = {
    "temperature": st.one_of(
        st.sampled_from([1, 0, 0.0, 2, 2.0]), st.floats(0.0, 2.0, allow_subnormal=False)
    ),
    "top_p": st.one_of(st.sampled_from([1, 1.0]), st.floats(0.01, 1.0)),
    "top_k": st.integers(1, 100),
    "stream": st.just(False),
    "stop": st.lists(st.sampled_from(["\n", ".", "END", "###"]), max_size=2, unique=True),
}

# The limits of the documented ranges are tried in every run, not only by chance.
EDGES: tuple[dict[str, Json], ...] = tuple(
    {"prompt": "Hello", "max_tokens": 2, key: value}
    for key, value in (
        ("max_tokens", 1), ("max_tokens", 100),
        ("temperature", 0), ("temperature", 2), ("temperature", 1.5), ("temperature", 0.2),
        ("top_p", 1), ("top_p", 0.5), ("top_p", 0.1), ("top_k", 1), ("top_k", 50), ("top_k", 100),
        ("stream", False),
        ("stop", []), ("stop", ["\n", "END"]),
    )
)  # fmt: skip


@st.composite
def subsets(
    draw: st.DrawFn, options: dict[str, st.SearchStrategy[Json]], *, min_size: int = 0
) -> dict[str, Json]:
    """Make a dictionary of some of these keys; it shrinks key by key, unlike Hypothesis's."""
    chosen = {key: draw(values) for key, values in options.items() if draw(st.booleans())}
    for key in options:
        if len(chosen) >= min_size:
            break
        if key not in chosen:
            chosen[key] = draw(options[key])
    return chosen


# Close to the limits, and as many stop sequences as most interfaces take, for later editions.
MORE_EDGES: tuple[dict[str, Json], ...] = (
    {"prompt": "Hello", "max_tokens": 2, "temperature": 1e-7},
    {"prompt": "Hello", "max_tokens": 2, "temperature": 0.02},
    {"prompt": "Hello", "max_tokens": 2, "temperature": 1.99999},
    {"prompt": "Hello", "max_tokens": 2, "top_p": 0.001, "top_k": 1, "temperature": 0.7},
    {"prompt": "Hello", "max_tokens": 2, "stop": ["\n", "END", "###", "@@@"]},
)
# Each number of a few tokens.
EACH_OF_FEW: tuple[dict[str, Json], ...] = tuple(
    {"prompt": "Hello", "max_tokens": most} for most in range(1, 17)
)


@st.composite
def good_bodies(draw: st.DrawFn) -> dict[str, Json]:
    """Make a body of POST /inference that the document allows, without a stream."""
    return {
        "prompt": draw(plain_prompts),
        "max_tokens": draw(st.integers(1, MAX_TOKENS)),
        **draw(subsets(_OPTIONAL)),
    }


@dataclass(frozen=True)
class BadBody:
    """A body that should be refused, and the requirement that demands it."""

    body: Json
    requirement: str


_PROMPT = {"prompt": "Hello", "max_tokens": 1}


def _with(key: str, value: Json, ident: str) -> BadBody:
    return BadBody({**_PROMPT, key: value}, ident)


MISSING = "NA-INF-002"
RANGE = "NA-INF-007"
TYPE = "NA-INF-019"
NO_TYPE = "NA-INF-031"
# Bodies with a value that even a lenient reader cannot take for the documented type.
IMPOSSIBLE = (
    _with("prompt", ["Hello"], NO_TYPE), _with("prompt", {"text": "Hello"}, NO_TYPE),
    _with("max_tokens", "ten", NO_TYPE), _with("max_tokens", {"n": 1}, NO_TYPE),
    _with("temperature", "warm", NO_TYPE), _with("temperature", {}, NO_TYPE),
    _with("top_p", "all", NO_TYPE), _with("top_k", "some", NO_TYPE),
    _with("stop", {"a": 1}, NO_TYPE), BadBody([], NO_TYPE), BadBody("Hello", NO_TYPE),
)  # fmt: skip
# Tried in every run, not only by chance.
SURELY_BAD = (
    BadBody({"max_tokens": 1}, MISSING), _with("temperature", 2.5, RANGE),
    _with("temperature", -0.5, RANGE), _with("max_tokens", 1.5, TYPE), *IMPOSSIBLE,
    _with("temperature", True, TYPE), _with("top_p", True, TYPE), _with("stop", "once", TYPE),
    _with("max_tokens", True, TYPE), _with("stream", "yes", TYPE), _with("top_k", True, TYPE),
    _with("stop", True, TYPE),
)  # fmt: skip

# Numbers as texts, and one as a switch, which later editions try too.
TEXTS = (
    _with("max_tokens", "1", TYPE), _with("temperature", "0.5", TYPE), _with("top_k", "5", TYPE),
    _with("stream", 0, TYPE),
)  # fmt: skip
# And switches as texts, as forms of browsers have them.
SWITCHES = (_with("stream", "true", TYPE), _with("stream", "false", TYPE))
NO_SWITCHES = (_with("stream", [], TYPE), _with("stream", {}, TYPE))

bad_bodies: st.SearchStrategy[BadBody] = st.one_of(
    st.just(BadBody({"max_tokens": 1}, MISSING)),
    st.one_of(
        st.sampled_from([-0.1, 2.1, -1, 3, 1000]),
        st.floats(2.01, 1e6),
        st.floats(-1e6, -0.01),
    ).map(lambda value: _with("temperature", value, RANGE)),
    st.sampled_from([7, True, None]).map(lambda value: _with("prompt", value, TYPE)),
    st.sampled_from([("max_tokens", 1.5), ("top_k", 1.5), ("stream", 2), ("stop", 7),
                     ("stream", "maybe"), ("stop", [1, 2])]).map(
        lambda pair: _with(*pair, TYPE)
    ),
    st.sampled_from(IMPOSSIBLE),
)  # fmt: skip

# What some readers of JSON take all the same.
NEARLY_JSON = (
    b'{"prompt": "Hello", "max_tokens": 1, "not_in_the_document": NaN}',
    b'{"prompt": "Hello", "max_tokens": 1} and more',
    b'{"prompt": "Hello", "max_tokens": 1}{"prompt": "Hello", "max_tokens": 1}',
)
# Numbers that are JSON, and more than any reader's own numbers hold; beside other good values.
BEYOND = (
    b'{"prompt": "Hello", "max_tokens": 1, "temperature": 1e999}',
    b'{"prompt": "Hello", "top_p": 0.9, "top_k": 5, "stop": ["END"], "temperature": 2.01}',
)
# A text that is no UTF-8 is no JSON (RFC 8259), which lets a reader take more than JSON: several
# put replacements in the place of such bytes.
NOT_UTF8 = b'{"prompt": "Hello \xff\xfe", "max_tokens": 1}'
broken_json = st.sampled_from(
    [b"{", b'{"prompt": "Hello"', b"prompt=Hello", b'{"prompt": \xff}', b"[1, 2", b'{"prompt": }']
)


@st.composite
def stream_bodies(draw: st.DrawFn) -> dict[str, Json]:
    """Make a documented body of POST /inference with a stream."""
    return {**draw(good_bodies()), "stream": True}
