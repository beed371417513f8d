"""Interface 5: tokens that only resemble a valid one."""

from collections.abc import Iterator

from conformance.checks.auth import TOO_MANY
from conformance.checks.guards import smallest_bodies
from conformance.checks.node_reads import AUTH_READS, CONFIG
from conformance.checks.reading import ABSENT
from conformance.context import Context
from conformance.editions import FOURTH, SEVENTH, SIXTH
from conformance.findings import Skipped
from conformance.httprequest import Credential, bearer
from conformance.registry import requirement

EVERYWHERE = "NA-AUTH-054"
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


def _resembling(context: Context) -> Iterator[Credential]:
    """Yield tokens that begin like the declared one, end like it, or are a part of it."""
    token = context.target.token or ""
    known = {token, context.target.second_token, context.target.expired_token}
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
            yield bearer(other, shown)


@requirement("NA-AUTH-021")
def guards_resembling(context: Context) -> None:
    """GET /config with tokens that begin like the declared one, end like it, or are part of it."""
    control = context.api("GET", CONFIG.path, credential=context.target.valid)
    if not control.ok:
        raise Skipped(f"the declared token is answered with {control.status}")
    for credential in _resembling(context):
        answer = context.api("GET", CONFIG.path, credential=credential)
        why = f"a token that only resembles the declared one: status {answer.status}"
        context.judge("NA-AUTH-021", answer.status == 401, why, control, answer)


@requirement(EVERYWHERE)
def guards_resembling_everywhere(context: Context) -> None:
    """Use the same tokens on every other Auth route, also on those that change something."""
    if context.edition < SEVENTH:
        raise Skipped("later editions ask for it")
    asked = [("GET", one.path, None) for one in AUTH_READS if one is not CONFIG]
    for method, path, body in (*asked, *smallest_bodies(context)):
        for credential in _resembling(context):
            answer = context.api(method, path, credential=credential, json_body=body)
            if answer.status not in (*ABSENT, TOO_MANY) and answer.status < 500:
                why = f"{method} {path} with {credential.shown}: status {answer.status}"
                context.judge(EVERYWHERE, not answer.ok, why, answer)
