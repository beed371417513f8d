"""Interface 4.2: the forms that the query of a page may have, and pages of each small length.

Which limits a node takes, and how many entries a page has without one, is not specified. So pages
with one bound are compared with one another, and the bound is below the end of the list, which may
grow meanwhile.
"""

from conformance.checks.mixed_native_pages import COMPLETE, ENDS_ALIKE, LISTS, Listing, Page
from conformance.checks.money import eventually
from conformance.checks.native import native_get
from conformance.checks.native_documents import numbers_of
from conformance.context import Context
from conformance.editions import SEVENTH, SIXTH
from conformance.findings import Skipped
from conformance.registry import requirement
from conformance.strictjson import brief

NOTHING, BARE, FULL = "NT-PAGE-020", "NT-PAGE-021", "NT-PAGE-022"
SORTED, ESCAPED, PART = "NT-PAGE-023", "NT-PAGE-024", "NT-PAGE-004"
LIMITED = "NT-PAGE-025"
# With which a limit is refused, or a node asks to wait.
PERMITTED = (400, 422, 429, 503)
LIMITS, TWO = range(3, 10), "%32"
# Beyond the usual limits; a node may list fewer for all of the longer ones.
SHORTER, LONGER = (1, 2), (12, 16, 20, 28, 60)
# Blocks above the newest one that is listed; and how long a list may lag.
ABOVE, LAGS_S = range(2, 13), 4.0
# No height of a chain, and no round, is as high; it has more than 31 bits.
FAR = 2**31 + 5
BLOCKS = "/api/blocks"
NEWEST = {BLOCKS: "NT-PAGE-007", "/api/training": "NT-PAGE-008"}


@requirement(
    NOTHING, BARE, FULL, SORTED, ESCAPED, PART, COMPLETE, LIMITED, ENDS_ALIKE, *NEWEST.values()
)  # fmt: skip
def native_page_forms(context: Context) -> None:
    """GET pages of 3 to 9 entries with one bound, and with other forms of a query."""
    if context.edition < SIXTH:
        raise Skipped("later editions ask for it")
    for listing in LISTS:
        first = listing.read(context, LIMITS.stop)
        if len(first.numbers) < LIMITS.start:
            continue
        bare = listing.read(context, None)
        _judge_bare(context, listing, first, bare)
        for limit, before in ((0, None), (LIMITS.start, 0)):
            page = listing.read(context, limit, before)
            why = f"{listing.path}{page} lists {brief(page.numbers)}"
            if page.answer.ok:
                context.judge(NOTHING, not page.numbers, why, page.answer)
        bound = max(first.numbers) - 1
        pages = [listing.read(context, limit, bound) for limit in LIMITS]
        if context.edition >= SEVENTH:
            longer = [listing.read(context, limit, bound) for limit in LONGER]
            _judge_served(context, listing, pages[-1], longer)
            shorter = [listing.read(context, limit, bound) for limit in SHORTER]
            _judge_ends(context, listing, bound, [*shorter, *pages, *longer])
            if listing.path == BLOCKS:
                _judge_tip(context, listing, first)
            pages += longer
        # What a page without a bound has below it.
        least = sum(number < bound for number in first.numbers)
        _judge_lengths(context, listing, pages, least if context.edition >= SEVENTH else 0)
        _judge_order(context, listing, [first, bare, *pages])
        _judge_forms(context, listing, first, pages[0])


def _judge_bare(context: Context, listing: Listing, first: Page, bare: Page) -> None:
    why = f"{listing.path} without a query: status {bare.answer.status}, {brief(bare.numbers)}"
    if context.judge(BARE, bool(bare.numbers), why, first.answer, bare.answer):
        # It was read last, so that it has what has been made meanwhile too.
        held = max(bare.numbers) >= max(first.numbers)
        why = f"{why}, and with a limit {brief(first.numbers)}"
        context.judge(NEWEST[listing.path], held, why, first.answer, bare.answer)


def _judge_served(context: Context, listing: Listing, page: Page, longer: list[Page]) -> None:
    """Rule on limits that are higher than one that is served."""
    for other in longer if page.numbers else ():
        held = bool(other.numbers) or other.answer.status in PERMITTED
        why = f"{listing.path}{other}: status {other.answer.status}, {brief(other.numbers)}"
        context.judge(LIMITED, held, why, page.answer, other.answer)


def _judge_ends(context: Context, listing: Listing, bound: int, pages: list[Page]) -> None:
    """Rule on whether the bound, which is in the list, is on all pages that reach it or on none."""
    found: dict[bool, Page] = {}
    numbers = {number for page in pages for number in page.numbers}
    below = max((number for number in numbers if number < bound), default=None)
    for page in pages:
        if bound in page.numbers or below in page.numbers:
            found.setdefault(bound in page.numbers, page)
    why = f"{listing.path}: of {brief(list(map(str, found.values())))} one has its bound"
    context.judge(ENDS_ALIKE, len(found) < 2, why, *(page.answer for page in found.values()))


def _judge_tip(context: Context, listing: Listing, first: Page) -> None:
    """Rule on a list of blocks that ends below one that can be read, for longer than it may lag."""
    served = [at for at in ABOVE if native_get(context, f"/api/block/{max(first.numbers) + at}").ok]
    if not served:
        return
    tip, pages = max(first.numbers) + max(served), list[Page]()

    def is_listed() -> bool:
        pages.append(listing.read(context, 1))
        return max(pages[-1].numbers, default=tip) >= tip

    held, page = eventually(is_listed, LAGS_S), pages[-1]
    why = f"{listing.path}{page} lists {brief(page.numbers)}, and block {tip} could be read before"
    context.judge(NEWEST[listing.path], held, why, first.answer, page.answer)


def _judge_lengths(context: Context, listing: Listing, pages: list[Page], least: int) -> None:
    """Rule on pages that are shorter than their limit, though another one has more entries.

    So many, at ``least``, are on a page without a bound.
    """
    most = max(least, *(len(page.numbers) for page in pages))
    for page in pages:
        expected = min(page.limit or 0, most)
        if not page.answer.ok or page.answer.json_object() is None or not page.numbers:
            continue
        if len(page.numbers) < expected:
            again = listing.read(context, page.limit, page.before)
            why = f"{listing.path}{page} has {len(again.numbers)} entries, another one {most}"
            held = len(again.numbers) >= expected
            context.judge(FULL, held, why, page.answer, again.answer)
        else:
            context.holds(FULL, page.answer)


def _judge_order(context: Context, listing: Listing, pages: list[Page]) -> None:
    """Rule on the order of entries, which is one on all pages."""
    falling: dict[bool, Page] = {}
    for page in pages:
        if len(page.numbers) > 1:
            falls = page.numbers[0] > page.numbers[1]
            falling.setdefault(falls, page)
            ordered = page.numbers == sorted(page.numbers, reverse=falls)
            why = f"{listing.path}{page} lists {brief(page.numbers)}"
            context.judge(SORTED, ordered, why, page.answer)
    if len(falling) > 1:
        told = [f"{page} {brief(page.numbers)}" for page in falling.values()]
        why = f"{listing.path}{told[0]}, and {told[1]}"
        context.fails(SORTED, why, *(page.answer for page in falling.values()))


def _judge_forms(context: Context, listing: Listing, first: Page, page: Page) -> None:
    """Rule on parameters in another order, in percent encoding, and beyond 31 bits."""
    turned = {"before": page.before, "limit": page.limit}
    for _ in range(2):
        answer = context.http.call("GET", listing.path, query=turned)
        found = numbers_of(context, listing.declared, listing.key, answer.json_object())
        if found == page.numbers:
            break
    why = f"{listing.path}{page} lists {brief(page.numbers)}, and in another order {brief(found)}"
    if page.answer.ok and answer.status < 500:
        context.judge(PART, found == page.numbers, why, page.answer, answer)
    answer = context.http.call("GET", f"{listing.path}?limit={TWO}")
    found = numbers_of(context, listing.declared, listing.key, answer.json_object())
    why = f"{listing.path}?limit={TWO}: status {answer.status}, {len(found)} entries"
    context.judge(ESCAPED, answer.ok and len(found) == int(TWO[-1]), why, answer)
    far = listing.read(context, LIMITS.start, FAR)
    if far.answer.ok and far.answer.json_object() is not None:
        why = f"{listing.path}{far} lists {brief(far.numbers)}, others {brief(first.numbers)}"
        there = max(far.numbers, default=0) >= max(first.numbers)
        held = there if listing.newest_first else bool(far.numbers)
        context.judge(COMPLETE, held, why, first.answer, far.answer)
