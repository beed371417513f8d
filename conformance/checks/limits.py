"""Section 7.1, 429: whether a target ever limits requests, and how it says so.

The threshold is not shown, and a target without one is right as well. The body of what comes is
judged by the passive checks.
"""

from conformance import passive
from conformance.context import API, Context
from conformance.registry import requirement

# Enough for limits that are meant for clients, and little for a server.
MOST = 3000


@requirement("NA-ERR-015", *(f"NA-ERR-{number:03d}" for number in (1, 2, 3, 4, 6, 7)))
def rate_limit(context: Context) -> None:
    """GET /status as fast as it goes for a few seconds, until the first 429."""
    within_s = context.target.burst_s
    answer = context.http.burst(f"{API}/status", most=MOST, within_s=within_s)
    if answer is None:
        context.observe("NA-ERR-015", f"no 429 in {within_s:g} s or {MOST} requests")
        return
    passive.judge_answer(context, answer)
    context.observe("NA-ERR-015", "a 429 came", answer)
    # Waits as long as it is told, so that the next check begins with a target that serves.
    context.api("GET", "/status")
