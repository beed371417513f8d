"""A history of many pages: the suite looks for kinds of entries that the first page lacks."""

from typing import Any
from urllib.parse import parse_qs

from conformance.ended import Result, Run
from conformance.judging.toy.answers import Asked, Response, error, now
from conformance.judging.toy.serving import Serving
from conformance.tests.conftest import Judge
from conformance.tests.test_mutants_of_fields import failed_musts
from conformance.verdict import Exit, Standing

PATH = "/api/v1/wallet/transactions"
REWARD, PAGES = "NA-HISTORY-017", "NA-QUERY-018"
PAGE = 20


class Buried:
    """A history in which fees push the only reward off the first page."""

    def __init__(self, max_limit: int = 1000, fees: int = PAGE, **changes: Any) -> None:
        """Refuse a `limit` above `max_limit`; `changes` are made to the reward."""
        self.limits: list[int] = []
        self._max_limit, self._fees, self._changes = max_limit, fees, changes

    def __call__(self, asked: Asked, response: Response) -> None:
        """Answer with fees, and the reward after them."""
        if asked.path != PATH or response.status != 200:
            return
        query = parse_qs(asked.query)
        limit, offset = (
            int(query.get(key, [default])[0])
            for key, default in (("limit", str(PAGE)), ("offset", "0"))
        )
        self.limits.append(limit)
        if limit > self._max_limit:
            response.__dict__.update(error(400, "INVALID_REQUEST", "too many").__dict__)
            return
        fee = {"type": "fee", "amount": -0.1, "timestamp": now()}
        reward = {"id": "reward", "type": "reward", "amount": 1.5, "timestamp": now(),
                  "details": {"proof_id": "p1", "role": "worker"}, **self._changes}  # fmt: skip
        history = [*({"id": f"fee{at}", **fee} for at in range(self._fees)), reward]
        page = history[offset : offset + limit]
        response.json.update(transactions=page, total=len(history), limit=limit)


def result(ended: Run, ident: str = REWARD) -> Result:
    """Return the result for the details of a reward, or for another requirement."""
    return next(item for item in ended.results if item.requirement.id == ident)


def test_a_reward_beyond_the_first_page_is_judged(toy: Serving, judge: Judge) -> None:
    toy.node.http_hook = buried = Buried()
    ended = judge(REWARD, allow=frozenset())
    assert result(ended).standing is Standing.PROVED
    # No more than there is.
    assert max(buried.limits) == PAGE + 1
    toy.node.http_hook = Buried(details="none")
    assert failed_musts(judge(REWARD, allow=frozenset()).results) == {"NA-HISTORY-018"}


def test_a_target_that_gives_no_longer_page_shows_it_on_the_last(
    toy: Serving, judge: Judge
) -> None:
    toy.node.http_hook = buried = Buried(max_limit=PAGE)
    ended = judge(REWARD, allow=frozenset())
    assert max(buried.limits) > PAGE
    assert result(ended).standing is Standing.PROVED
    assert ended.faults == {}
    assert ended.ended() is not Exit.VIOLATED


class Shifted(Buried):
    """A history whose pages begin one entry too late where they have an offset and no limit."""

    def __call__(self, asked: Asked, response: Response) -> None:
        """Leave the first entry of such a page out."""
        super().__call__(asked, response)
        if asked.path == PATH and asked.query.startswith("offset=") and "limit" not in asked.query:
            response.json["transactions"] = response.json["transactions"][1:]


def test_pages_of_a_history_too_long_to_read_are_judged_by_its_newest_entries(
    toy: Serving, judge: Judge
) -> None:
    toy.node.http_hook = Buried(fees=10 * PAGE)
    assert failed_musts(judge(PAGES, allow=frozenset()).results) == set()
    assert result(judge(PAGES, allow=frozenset()), PAGES).standing is Standing.PROVED
    toy.node.http_hook = Shifted(fees=10 * PAGE)
    assert failed_musts(judge(PAGES, allow=frozenset()).results) == {PAGES}
