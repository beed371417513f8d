"""Interface 5: bearer tokens, hashed at rest, expiring, revocable, shared between processes."""

import hmac
import json
import logging
import multiprocessing
import stat
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.checksums import dump_checked
from meshnode.domain.errors import InvalidRequest, MissingScope, StartupError, Unauthorized
from meshnode.domain.tokens import (
    CUSTOMER,
    PREFIX,
    Scope,
    bearer_secret,
    find_live,
    new_token,
    parse_scopes,
)
from meshnode.services.keystore import TOKEN_FILE, load_or_create_token, replace_token
from meshnode.services.tokens import TOKENS_FILE, TokenStore

TOKEN68 = st.from_regex(r"[A-Za-z0-9._~+/-]{1,100}={0,2}", fullmatch=True)


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def test_a_secret_has_256_random_bits_and_is_recognisable() -> None:
    record, secret = new_token("alice", bytes(range(38)), 5.5)
    assert secret.startswith(PREFIX)
    assert len(secret) == len(PREFIX) + 43
    assert (record.id, record.created_at) == ("202122232425", 5)
    assert bearer_secret(f"Bearer {secret}") == secret


def test_issued_tokens_are_accepted_and_their_secrets_are_not_on_the_disk(tmp_path: Path) -> None:
    store = TokenStore(tmp_path)
    record, secret = store.issue("alice")
    assert store.authenticate(secret) == record
    assert TokenStore(tmp_path).authenticate(secret) == record
    for path in tmp_path.iterdir():
        assert secret not in path.read_text()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("secret", ["", "mn_", "mn_" + "A" * 43, "\ud800", "x" * 10_000])
def test_unknown_tokens_are_refused(tmp_path: Path, secret: str) -> None:
    store = TokenStore(tmp_path, "operator-token")
    store.issue("alice")
    with pytest.raises(Unauthorized):
        store.authenticate(secret)


def test_a_token_expires(tmp_path: Path) -> None:
    clock = Clock()
    store = TokenStore(tmp_path, clock=clock)
    record, secret = store.issue("alice", ttl_s=60)
    clock.now += 59
    assert store.authenticate(secret).name == "alice"
    clock.now += 1
    with pytest.raises(Unauthorized):
        store.authenticate(secret)
    assert store.list() == [record]
    store.issue("alice")  # an expired token does not hold its name


@pytest.mark.parametrize("by", ["id", "name"])
def test_a_revoked_token_is_refused_from_the_next_request_on(tmp_path: Path, by: str) -> None:
    node = TokenStore(tmp_path)
    command = TokenStore(tmp_path)
    record, secret = command.issue("alice")
    assert node.authenticate(secret) == record
    revoked = command.revoke(getattr(record, by))
    assert revoked.revoked_at is not None
    with pytest.raises(Unauthorized):
        node.authenticate(secret)
    assert node.list() == [revoked]


def test_the_operator_token_is_accepted_and_never_written(tmp_path: Path) -> None:
    store = TokenStore(tmp_path, "operator-token")
    assert store.authenticate("operator-token").name == "operator"
    assert store.list() == []
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InvalidRequest):
        store.issue("operator")


def test_a_token_has_the_scopes_that_it_was_issued_with(tmp_path: Path) -> None:
    store = TokenStore(tmp_path)
    customer, _ = store.issue("alice")
    assert customer.scopes == (Scope.INFER, Scope.WALLET, Scope.READ)
    reader, secret = store.issue("bob", scopes=parse_scopes("admin,read"))
    assert TokenStore(tmp_path).authenticate(secret) == reader
    reader.require(Scope.ADMIN)
    with pytest.raises(MissingScope, match="infer"):
        reader.require(Scope.INFER)
    for text in ("", "all", "read,", "read, admin"):
        with pytest.raises(InvalidRequest, match="scope"):
            parse_scopes(text)


def test_tokens_from_before_there_were_scopes_are_those_of_customers(tmp_path: Path) -> None:
    record, secret = TokenStore(tmp_path).issue("alice")
    entry = asdict(record)
    del entry["scopes"]
    document = {"format": "meshnode-tokens-v1", "tokens": [entry]}
    (tmp_path / TOKENS_FILE).write_bytes(dump_checked(document))
    store = TokenStore(tmp_path)
    assert store.authenticate(secret).scopes == CUSTOMER
    store.issue("bob")
    assert [each.scopes for each in TokenStore(tmp_path).list()] == [CUSTOMER, CUSTOMER]


def test_a_scope_that_nobody_knows_is_damage(tmp_path: Path) -> None:
    record, _ = TokenStore(tmp_path).issue("alice")
    entry = asdict(record) | {"scopes": ["everything"]}
    document = {"format": "meshnode-tokens-v2", "tokens": [entry]}
    (tmp_path / TOKENS_FILE).write_bytes(dump_checked(document))
    with pytest.raises(StartupError, match="damaged"):
        TokenStore(tmp_path)


def test_the_operators_token_can_be_changed_while_the_node_runs(tmp_path: Path) -> None:
    token, _ = load_or_create_token(tmp_path)
    store = TokenStore(tmp_path, token, operator_file=tmp_path / TOKEN_FILE)
    assert store.authenticate(token).scopes == tuple(Scope)
    changed = replace_token(tmp_path)
    assert store.authenticate(changed).id == "operator"
    with pytest.raises(Unauthorized):
        store.authenticate(token)
    # Neither damage nor loss takes the operator's access away.
    (tmp_path / TOKEN_FILE).write_text("no token")
    assert store.authenticate(changed).id == "operator"
    (tmp_path / TOKEN_FILE).unlink()
    assert store.authenticate(changed).id == "operator"


def test_no_operator_token_does_not_mean_an_empty_one(tmp_path: Path) -> None:
    with pytest.raises(Unauthorized):
        TokenStore(tmp_path).authenticate("")


def test_two_live_tokens_cannot_share_a_name(tmp_path: Path) -> None:
    store = TokenStore(tmp_path)
    store.issue("alice")
    with pytest.raises(InvalidRequest, match="in use"):
        store.issue("alice")


@pytest.mark.parametrize("name", ["", " ", "a b", "-x", "ü", "a" * 65, "a\n"])
def test_bad_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        TokenStore(tmp_path).issue(name)
    assert caught.value.field == "name"


@pytest.mark.parametrize("ttl_s", [0, -1, float("nan"), float("inf")])
def test_bad_lifetimes_are_refused(tmp_path: Path, ttl_s: float) -> None:
    with pytest.raises(InvalidRequest) as caught:
        TokenStore(tmp_path).issue("alice", ttl_s)
    assert caught.value.field == "ttl"


def test_revoking_an_unknown_token_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="no live token"):
        TokenStore(tmp_path).revoke("alice")


def test_a_damaged_file_stops_the_start_and_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / TOKENS_FILE
    for text in [
        "{",
        "[]",
        '{"format": "x"}',
        '{"format": "meshnode-tokens-v1", "tokens": [{}]}',
        "[" * 100_000,
    ]:
        path.write_text(text)
        with pytest.raises(StartupError, match="damaged"):
            TokenStore(tmp_path)
        assert path.read_text() == text


def test_a_flipped_bit_is_not_another_token(tmp_path: Path) -> None:
    record, _ = TokenStore(tmp_path).issue("alice")
    path = tmp_path / TOKENS_FILE
    text = path.read_text()
    path.write_text(text.replace(record.digest, f"{int(record.digest, 16) ^ 1:064x}"))
    with pytest.raises(StartupError, match="damaged"):
        TokenStore(tmp_path)
    # A file of an earlier version has no checksum.
    document = json.loads(text)
    del document["checksum"]
    path.write_text(json.dumps(document))
    assert TokenStore(tmp_path).list() == [record]


def test_a_file_that_is_damaged_later_changes_nothing_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = TokenStore(tmp_path)
    _, secret = store.issue("alice")
    (tmp_path / TOKENS_FILE).write_text("{ an editor slipped")
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            assert store.authenticate(secret).name == "alice"
    assert len(caplog.records) == 1
    with pytest.raises(StartupError):
        store.issue("bob")
    assert (tmp_path / TOKENS_FILE).read_text() == "{ an editor slipped"


def test_removing_the_file_revokes_everything(tmp_path: Path) -> None:
    store = TokenStore(tmp_path)
    _, secret = store.issue("alice")
    (tmp_path / TOKENS_FILE).unlink()
    with pytest.raises(Unauthorized):
        store.authenticate(secret)


def test_the_list_forgets_the_oldest_dead_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("meshnode.services.tokens.MAX_DEAD", 3)
    monkeypatch.setattr("meshnode.services.tokens.MAX_LIVE", 2)
    store = TokenStore(tmp_path)
    for number in range(8):
        store.issue(f"n{number}")
        store.revoke(f"n{number}")
    store.issue("a")
    store.issue("b")
    assert [record.name for record in store.list()] == ["n5", "n6", "n7", "a", "b"]
    with pytest.raises(InvalidRequest, match="revoke some"):
        store.issue("c")


def test_a_folder_that_is_gone_is_one_clear_line(tmp_path: Path) -> None:
    store = TokenStore(tmp_path / "gone")
    with pytest.raises(StartupError, match=r"cannot write .*: No such file"):
        store.issue("alice")


def _issue_ten(folder: Path, prefix: str) -> None:
    for number in range(10):
        TokenStore(folder).issue(f"{prefix}{number}")


def test_commands_at_the_same_time_lose_no_token(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_issue_ten, args=(tmp_path, prefix)) for prefix in "ab"]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert len(TokenStore(tmp_path).list()) == 20
    assert len(json.loads((tmp_path / TOKENS_FILE).read_text())["tokens"]) == 20


def test_every_record_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [new_token(f"n{n}", bytes([n]) * 38, 0) for n in range(5)]
    records = [record for record, _ in made]
    compared = []
    real = hmac.compare_digest

    def counting(left: str, right: str) -> bool:
        compared.append(left)
        found: bool = real(left, right)
        return found

    monkeypatch.setattr(hmac, "compare_digest", counting)
    for _, secret in made:
        find_live(records, secret, 0)
    assert len(compared) == 25


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer  two-spaces",
        "Bearer a b",
        "Bearer a,b",
        "Bearer a=b",
        "Basic abc",
        "abc",
        "Bearer\tabc",
        " Bearer abc",
        "Bearer " + "a" * 600,
        "Bearer \u00e9",
    ],
)
def test_other_authorization_headers_are_refused(header: str | None) -> None:
    with pytest.raises(Unauthorized):
        bearer_secret(header)


@given(st.sampled_from(["Bearer", "bearer", "BEARER", "bEaReR"]), TOKEN68)
def test_the_scheme_has_no_case_and_the_token_is_taken_whole(scheme: str, secret: str) -> None:
    assert bearer_secret(f"{scheme} {secret}") == secret
