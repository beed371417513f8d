"""Interface 4.2: pages of blocks and updates with drawn limits and bounds, against the whole list.

The list is walked once, from its newest entries on and at its end; a chain may be too long to walk
all of it. A *stretch* is what was walked in one go: from its lowest to its highest number the
entries that were seen are all that there are. Whether the bound itself belongs to a page is not
said, nor in which order a page has its entries, nor that it has as many as its limit. The chain
may grow and its index lag, so that a difference counts only where each of three tries shows it,
with the list walked anew.
"""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

from conformance.checks.native import members_of, native_get
from conformance.checks.native_documents import entries_of, numbers_of
from conformance.context import Context
from conformance.editions import FIFTH
from conformance.findings import Skipped
from conformance.httpwire import Answer
from conformance.registry import requirement
from conformance.strictjson import Json, brief

WITHIN, COMPLETE, ALIKE = "NT-PAGE-009", "NT-PAGE-010", "NT-PAGE-011"
ENDS_ALIKE = "NT-PAGE-012"
TRIES, DRAWS, WALKED, LONG, STEP = 3, 8, 3, 100, 20
# Statuses with which a query is refused.
REFUSED = (400, 404, 422)
# Limits that any node takes, and that are drawn; and longer ones, where a page is often cut.
LIMITS, LONGER = range(1, 10), (20, 25, 26, 32, 33, 50, 51, 64, 65, LONG)
# More than a page of many nodes has, which one may refuse or cut.
LARGE = (128, 200, 256, 1000)
# What an entry calls a digest of itself.
_NAMED = re.compile(r"hash|root", re.IGNORECASE)
# As many pages at most are followed where they are shorter than their limit.
FOLLOWED = 4


@dataclass(frozen=True)
class Listing:
    """One of the two lists: its path, and where its numbers are."""

    path: str
    declared: str
    key: str
    newest_first: bool
    """Whether the document says which entries a page has where there are more than its limit."""

    def read(self, context: Context, limit: int | None, before: int | None = None) -> "Page":
        """GET one page."""
        query: dict[str, object] = {} if limit is None else {"limit": limit}
        if before is not None:
            query["before"] = before
        answer = native_get(context, self.path, query)
        document = answer.json_object() if answer.ok else None
        numbers = numbers_of(context, self.declared, self.key, document)
        entries = dict(entries_of(numbers, document))
        return Page(limit, before, answer, numbers, entries)


LISTS = (
    Listing("/api/blocks", "/api/blocks height", "height", newest_first=True),
    Listing("/api/training", "/api/training round", "round", newest_first=False),
)


@dataclass(frozen=True)
class Page:
    """One page: what was asked for, the numbers on it, and its entries by their numbers."""

    limit: int | None
    before: int | None
    answer: Answer
    numbers: list[int]
    entries: dict[int, Json]

    def __str__(self) -> str:
        """Return the query, as it is in the path."""
        query = {"limit": self.limit, "before": self.before}
        return "?" + "&".join(f"{key}={value}" for key, value in query.items() if value is not None)

    def names(self, number: int) -> list[tuple[str, Json]]:
        """Return the hashes and roots of an entry, with their names."""
        found = members_of(self.entries.get(number))
        return [(name, v) for name, v in found if _NAMED.search(name) and isinstance(v, str)]


@dataclass(frozen=True)
class Stretch:
    """All numbers of the list from the lowest to the highest of those that were walked."""

    numbers: frozenset[int]
    lowest: int
    highest: int

    def below(self, bound: int) -> list[int]:
        """Return the numbers below a bound, the highest first."""
        return sorted((number for number in self.numbers if number < bound), reverse=True)


def walk(context: Context, listing: Listing) -> list[Stretch]:
    """Walk the beginning and the end of a list. Raises `Skipped` where it has no numbers."""
    first = listing.read(context, LONG)
    if not first.answer.ok:
        # It may be too long a page.
        first = listing.read(context, STEP)
    if len(set(first.numbers)) < max(len(first.numbers), 2):
        raise Skipped(f"{listing.path} lists no two numbers, or one of them twice")
    found = [_walk_on(context, listing, first)]
    if found[0].lowest > STEP + 1:
        last = listing.read(context, STEP, STEP + 1)
        if len(last.numbers) > 1:
            found.append(_stretch(set(last.numbers)))
    return found


def _walk_on(context: Context, listing: Listing, page: Page) -> Stretch:
    numbers, highest = set(page.numbers), max(page.numbers)
    for _ in range(WALKED - 1):
        page = listing.read(context, STEP, min(page.numbers))
        new = {number for number in page.numbers if number <= highest} - numbers
        if not new:
            break
        numbers |= new
    return _stretch(numbers)


def _stretch(numbers: set[int]) -> Stretch:
    return Stretch(frozenset(numbers), min(numbers), max(numbers))


Query = tuple[int | None, int]


def _draw(drawn: random.Random, stretch: Stretch) -> Iterator[Query]:
    """Yield limits, or none, and bounds: at both ends of a stretch, and anywhere in it."""
    numbers = stretch.below(stretch.highest + 1)
    ends = [1, numbers[-1], *numbers[-2:], numbers[0], numbers[0] + drawn.choice(LIMITS)]
    for bound in (*ends, *(drawn.choice(numbers) for _ in range(DRAWS))):
        yield drawn.choice((*LIMITS, None)), bound
    # Both of them even, and both odd.
    middle = numbers[len(numbers) // 2] // 2 * 2
    yield from ((2, middle), (3, middle + 1))
    for limit in LONGER:
        yield limit, numbers[0] + drawn.choice(LIMITS)
    # Fewer entries are left than the limit is.
    few = drawn.choice(LIMITS[2:])
    for limit, at in ((few, few // 2), (few, few - 1)):
        if at < len(numbers):
            yield limit, numbers[-1 - at]


def _outside(page: Page, stretch: Stretch) -> str:
    """Say what is on the page that may not be, or nothing."""
    bound = page.before or 0
    later = [number for number in page.numbers if number > bound]
    inside = [n for n in page.numbers if stretch.lowest <= n <= min(stretch.highest, bound)]
    others = [number for number in inside if number not in stretch.numbers]
    if later:
        return f"lists {brief(later)}, above the bound"
    if len(set(page.numbers)) < len(page.numbers):
        return f"lists {brief(page.numbers)}, one of them twice"
    if others:
        return f"lists {brief(others)}, which the whole list does not have"
    return ""


def _left_out(page: Page, stretch: Stretch, *, newest_first: bool) -> str:
    """Say what the page leaves out between its entries, or at its beginning, or nothing."""
    expected = stretch.below(page.before or 0)
    end = max(page.numbers, default=0)
    if page.numbers:
        expected = [number for number in expected if number > min(page.numbers)]
        if not newest_first:
            expected = [number for number in expected if number < end]
    lacking = [number for number in expected if number not in page.numbers]
    return f"lists {brief(page.numbers)}, without {brief(lacking)}" if lacking else ""


@requirement(WITHIN, COMPLETE, ALIKE, ENDS_ALIKE)
def native_pages_mixed(context: Context) -> None:
    """GET pages of blocks and updates with drawn limits and bounds, and compare the whole list."""
    drawn = random.Random(context.target.seed)  # noqa: S311 - no secret
    reasons = []
    for listing in LISTS:
        try:
            stretches = walk(context, listing)
        except Skipped as reason:
            reasons.append(str(reason))
            continue
        for at, stretch in enumerate(stretches):
            _judge_stretch(context, listing, stretch, list(_draw(drawn, stretch)), at)
    if len(reasons) == len(LISTS):
        raise Skipped("; ".join(reasons))


def _judge_stretch(
    context: Context, listing: Listing, stretch: Stretch, queries: list[Query], at: int
) -> None:
    """Read the drawn pages, and those that follow short ones."""
    followed, pages = 0, list[Page]()
    if context.edition >= FIFTH:
        # A page without a bound may be made in another way.
        pages.append(listing.read(context, STEP))
        queries += [(limit, stretch.highest + 1) for limit in LARGE]
    for limit, bound in queries:
        page = _judge_page(context, listing, stretch, (limit, bound), at)
        pages.append(page)
        short = page.numbers and len(page.numbers) < (limit or 0) and min(page.numbers) < bound
        left = short and stretch.below(min(page.numbers))
        if left and followed < FOLLOWED and all(n <= bound for n in page.numbers):
            followed += 1
            queries.append((limit, min(page.numbers)))
    _judge_alike(context, listing, pages)
    ends = [page for page in pages if page.before in stretch.numbers and page.numbers]
    if context.edition >= FIFTH and ends:
        kinds = [
            [page for page in ends if (page.before in page.numbers) is there]
            for there in (True, False)
        ]
        firsts = [found[0] for found in kinds if found]
        why = f"of {brief(list(map(str, firsts)))} the first has its bound, the other one not"
        context.judge(ENDS_ALIKE, len(firsts) < 2, why, *(page.answer for page in firsts))


def _judge_alike(context: Context, listing: Listing, pages: list[Page]) -> None:
    """Rule on the hashes and roots of entries that are on several pages."""
    first: dict[int, Page] = {}
    compared: Page | None = None
    for page in pages:
        for number in page.entries:
            other = first.setdefault(number, page)
            if other is page or not page.names(number):
                continue
            compared = page
            if _differ(context, listing, number, (other, page)):
                return
    if compared is not None:
        context.holds(ALIKE, compared.answer)


def _differ(context: Context, listing: Listing, number: int, pages: tuple[Page, Page]) -> bool:
    """Return whether an entry is another one on one of two pages, each time they are read."""
    one, other = pages
    for _ in range(TRIES):
        if one.names(number) == other.names(number) or not (one.answer.ok and other.answer.ok):
            return False
        shown = (one, other)
        one, other = (listing.read(context, page.limit, page.before) for page in shown)
    told = [f"{page} {brief(page.names(number))}" for page in shown]
    why = f"{listing.path}: the entry {number} has on {told[0]}, on {told[1]}"
    context.fails(ALIKE, why, *(page.answer for page in shown))
    return True


def _judge_page(
    context: Context, listing: Listing, stretch: Stretch, query: Query, at: int
) -> Page:
    """Rule on one page, in up to three tries, each with a list that is newer."""
    page = listing.read(context, *query)
    wrong: dict[str, list[str]] = {WITHIN: [], COMPLETE: []}
    for attempt in range(TRIES):
        if attempt:
            stretches = walk(context, listing)
            if at >= len(stretches):
                return page
            stretch = stretches[at]
            page = listing.read(context, *query)
        whys = _faults(context, listing, page, stretch)
        for ident, why in whys.items():
            if why:
                wrong[ident].append(why)
            elif not attempt and page.answer.ok:
                context.holds(ident, page.answer)
        if not any(whys.values()):
            break
    for ident, tries in wrong.items():
        if len(tries) == TRIES:
            context.fails(ident, f"{listing.path}{page} {tries[-1]}", page.answer)
    return page


def _faults(context: Context, listing: Listing, page: Page, stretch: Stretch) -> dict[str, str]:
    """Say what is wrong with a page, for each requirement; an empty text for nothing."""
    if page.answer.ok:
        left_out = _left_out(page, stretch, newest_first=listing.newest_first)
        return {WITHIN: _outside(page, stretch), COMPLETE: left_out}
    bound = page.before or 0
    if page.answer.status not in REFUSED or bound <= stretch.lowest:
        return {}
    alone = listing.read(context, page.limit), listing.read(context, STEP, bound)
    why = f"is refused with status {page.answer.status}, though either is taken without the other"
    return {COMPLETE: why if all(one.answer.ok for one in alone) else ""}
