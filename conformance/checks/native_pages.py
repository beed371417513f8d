"""Interface 4.2: pages of blocks and of training updates, short and long, with `before` or not."""

from conformance.checks.native import NULL_SINCE, document_at, judge_mapped, mapped, native_get
from conformance.checks.node_sanity import FAILED
from conformance.context import Context
from conformance.httpwire import Answer
from conformance.registry import requirement
from conformance.strictjson import Json, brief, is_int

# A page longer than most; and the first edition that asks for one, and for a limit with `before`.
LONG, LONG_SINCE = 100, 4


@requirement("NT-PAGE-001", "NT-PAGE-002", "NT-PAGE-003", "NT-PAGE-004", "NT-RULE-026",
             "NT-ROUTE-005", "NT-ROUTE-006")  # fmt: skip
def native_pages(context: Context) -> None:
    """GET pages of blocks and of training updates: short, long, and such that end before one."""
    for path, name, before in (
        ("/api/blocks", "/api/blocks height", "NT-PAGE-002"),
        ("/api/training", "/api/training round", "NT-PAGE-003"),
    ):
        if context.edition >= LONG_SINCE:
            _judge_long(context, "NT-ROUTE-006" if path == "/api/blocks" else "NT-ROUTE-005", path)
        if name not in context.target.field_map:
            continue
        for limit in (1, 2):
            answer, document = document_at(context, path, {"limit": limit})
            listed = mapped(context, name, document)
            _judge_length(context, path, limit, listed, answer)
        answer, document = document_at(context, path, {"limit": 5})
        there = mapped(context, name, document)
        if there and context.edition >= NULL_SINCE:
            judge_mapped(context, name, document, answer)
        numbers = [value for value in there if is_int(value)]
        _judge_beginnings(context, path, name, numbers)
        if len(numbers) < 2:
            continue
        bound = sorted(numbers)[len(numbers) // 2]
        page_answer, page = document_at(context, path, {"limit": 5, "before": bound})
        if page is None:
            shown = f"{path}: status {page_answer.status} to before={bound}"
            context.fails(before, shown, answer, page_answer)
            continue
        # The document does not say whether the bound itself is on the page.
        later = [value for value in mapped(context, name, page) if is_int(value) and value > bound]
        shown = f"{path}: before={bound} lists {brief(later)}"
        context.judge(before, not later, shown, answer, page_answer)
        below = [value for value in numbers if value < bound]
        listed = mapped(context, name, page)
        lacking = [value for value in below if value not in listed]
        shown = f"{path}: before={bound} lacks {brief(lacking)}"
        context.judge("NT-PAGE-004", not lacking, shown, answer, page_answer)
        if context.edition >= LONG_SINCE:
            page_answer, page = document_at(context, path, {"limit": 1, "before": bound})
            _judge_length(context, path, 1, mapped(context, name, page), page_answer)


def _judge_beginnings(context: Context, path: str, name: str, numbers: list[Json]) -> None:
    """Rule on shorter pages: each begins like the longer one, and is as long as it may be."""
    for limit in (1, 2):
        answer, document = document_at(context, path, {"limit": limit})
        again_answer, again = document_at(context, path, {"limit": 5})
        if document is None or again is None or mapped(context, name, again)[:5] != numbers[:5]:
            continue
        listed = mapped(context, name, document)
        shown = f"{path}: limit={limit} lists {brief(listed)} of {brief(numbers)}"
        # Of a page that ends with the latest one, a shorter page is the end.
        held = listed in (numbers[:limit], numbers[-limit:])
        context.judge("NT-PAGE-004", held, shown, answer, again_answer)


def _judge_length(
    context: Context, path: str, limit: int, listed: list[Json], answer: Answer
) -> None:
    if answer.ok and answer.json_object() is not None:
        why = f"{path}: {len(listed)} entries for limit={limit}"
        context.judge("NT-PAGE-001", len(listed) <= limit, why, answer)


def _judge_long(context: Context, ident: str, path: str) -> None:
    """Rule on a long page, which a node may cut or refuse, but which must not make it fail."""
    answer = native_get(context, path, {"limit": LONG})
    if answer.ok or answer.status in FAILED:
        why = f"{path}?limit={LONG} is answered twice with status {answer.status}"
        context.judge(ident, answer.ok, why, answer)
