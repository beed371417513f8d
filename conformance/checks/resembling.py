"""Interface 5: tokens that only resemble a valid one."""

from collections.abc import Iterator

from conformance.checks.node_reads import CONFIG
from conformance.context import Context
from conformance.editions import FOURTH, SIXTH
from conformance.findings import Skipped
from conformance.httprequest import bearer
from conformance.registry import requirement

# So few letters of a token's end are tried by themselves.
LAST_LETTERS = 9
# Letters that begin with two ones in base64; the other bits of a last letter may mean nothing.
_LAST_QUARTER = "wxyz0123456789-_+/"


def _altered(token: str) -> list[tuple[str, str]]:
    """Return a token with another letter in its middle, and one with two letters exchanged."""
    at = len(token) // 2
    if at < 2:
        return []
    other = "A" if token[at] == "z" else "z"
    cut = f"$(printf %.{at}s $TOKEN)"
    changed = (f"{token[:at]}{other}{token[at + 1 :]}", f"{cut}{other}${{TOKEN:{at + 1}}}")
    turned = f"{token[: at - 1]}{token[at]}{token[at - 1]}{token[at + 1 :]}"
    start = f"$(printf %.{at - 1}s $TOKEN)"
    shown = f"{start}${{TOKEN:{at}:1}}${{TOKEN:{at - 1}:1}}${{TOKEN:{at + 1}}}"
    return [changed, (turned, shown)]


def _ends(token: str) -> Iterator[tuple[str, str]]:
    """Yield what is left of a token without its beginning, with how a shell makes it."""
    for left in (1, len(token) // 4, len(token) // 2, len(token) - LAST_LETTERS):
        if 0 < left < len(token):
            yield token[left:], f"${{TOKEN:{left}}}"


@requirement("NA-AUTH-021")
def guards_resembling(context: Context) -> None:
    """GET /config with tokens that begin like the declared one, end like it, or are part of it."""
    token = context.target.token or ""
    known = {token, context.target.second_token, context.target.expired_token}
    control = context.api("GET", CONFIG.path, credential=context.target.valid)
    if not control.ok:
        raise Skipped(f"the declared token is answered with {control.status}")
    half, last = len(token) // 2, "A" if token[-1:] in _LAST_QUARTER else "z"
    first = "A" if token[:1] == "z" else "z"
    later = context.edition >= FOURTH
    for other, shown in (
        (f"{token}-not-this-one", "$TOKEN-not-this-one"),
        (f"not-this-one-{token}", "not-this-one-$TOKEN"),
        (token[:half], f"$(printf %.{half}s $TOKEN)"),
        (token.swapcase(), "$(printf %s $TOKEN | tr a-zA-Z A-Za-z)"),
        (token[:-1] if later else "", "${TOKEN%?}"),
        (token[:-1] + last if later else "", f"${{TOKEN%?}}{last}"),
        (first + token[1:] if later else "", f"{first}${{TOKEN#?}}"),
        (f'"{token}"' if later else "", '\\"$TOKEN\\"'),
        (f"not-this-one,{token}" if later else "", "not-this-one,$TOKEN"),
        *(_altered(token) if context.edition >= SIXTH else ()),
        *(_ends(token) if context.edition >= SIXTH else ()),
        *((f"{token}{mark}" if later else "", f"$TOKEN{mark}") for mark in ".,;_"),
    ):
        if other and other not in known:
            answer = context.api("GET", CONFIG.path, credential=bearer(other, shown))
            why = f"a token that only resembles the declared one: status {answer.status}"
            context.judge("NA-AUTH-021", answer.status == 401, why, control, answer)
