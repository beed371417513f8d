"""Interface 4.2 rule 8 and interface 9: the paths kept from older editions."""

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest
import trio

from meshnode.http.join_page import join_page
from meshnode.http.page_files import page_files
from spec_tests.edges.native_gateway import Gateway, check_answer, start_gateway

EXPORT = {
    "network.json": {"chain_id": "reference-1", "height": 9},
    "block/5.json": {"height": 5},
    "account/02ab.json": {"public_key": "02ab", "balance": "5", "nonce": 1},
}


@pytest.fixture
async def gateway(nursery: trio.Nursery, tmp_path: Path) -> Gateway:
    lay_out(tmp_path / "reference")
    return await start_gateway(
        nursery, tmp_path, reference=tmp_path / "reference", with_index=False
    )


def lay_out(folder: Path) -> None:
    for name, value in EXPORT.items():
        path = folder / "api" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value))
    (folder / "secret.json").write_text("{}")


async def test_rule_8_legacy_registration_is_gone_whatever_the_method(gateway: Gateway) -> None:
    names = ["login", "register", "signup", "token", "users", "waitlist", "chat", "admin", "wallet"]
    paths = [f"/api/{name}{rest}" for name in names for rest in ("", "/", "/x", "/x/y")]
    paths += ["/api/auth", "/api/auth/", "/api/auth/register", "/api/auth/a/b"]
    for path in paths:
        for method in ("GET", "POST"):
            answer = await gateway.ask(method, path)
            assert answer.status == 410, path
            check_answer(answer)
            assert set(answer.json) == {"error"}
            assert "/join" in answer.json["error"]
    for method in ("PUT", "PATCH", "DELETE", "HEAD"):
        assert (await gateway.ask(method, "/api/auth/login")).status == 410


async def test_rule_8_old_login_and_signup_paths_redirect_to_join(gateway: Gateway) -> None:
    for name in ("signup", "login", "register", "dashboard", "download", "token"):
        for path in (f"/{name}", f"/{name}/", f"/{name}?next=//elsewhere.example"):
            answer = await gateway.ask("GET", path)
            assert (answer.status, answer.headers["location"]) == (302, "/join")
            assert answer.body == b""
    assert (await gateway.ask("GET", "/signup/now")).status == 404


class Page(HTMLParser):
    """Collects from a page what the accessibility checks look at."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs


async def test_join_is_a_plain_accessible_page(gateway: Gateway) -> None:
    answer = await gateway.ask("GET", "/join")
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    text = answer.body.decode()
    page = Page(text)
    assert ("lang", "en") in page.attributes
    assert page.tags.count("h1") == page.tags.count("main") == page.tags.count("title") == 1
    assert not {"script", "iframe", "form", "style"} & set(page.tags)
    assert gateway.ledger.chain_id in text
    assert gateway.ledger.genesis_sha256 in text
    assert "meshnode key new" in text
    # Every link on the page works on this node; its styles are those of the node's page.
    for name, value in page.attributes:
        if name in ("href", "src") and str(value).startswith("/page/"):
            assert str(value).removeprefix("/page/") in page_files()
        elif name == "href" and value != "/":
            assert (await gateway.ask("GET", str(value))).status == 200


def test_what_comes_from_elsewhere_is_escaped_on_the_page() -> None:
    page = join_page("<script>", "a&b", "1", 'http://x"><script>').decode()
    assert "<script" not in page
    assert "&lt;script&gt;" in page


async def test_the_reference_chain_can_be_read(gateway: Gateway) -> None:
    base = "/reference/v03/api"
    for path, name in {
        "/network": "network.json",
        "/network?x=1": "network.json",
        "/network.json": "network.json",
        "/block/5": "block/5.json",
        "/account?public_key=02ab": "account/02ab.json",
    }.items():
        answer = await gateway.ask("GET", base + path)
        check = json.loads(answer.body)
        assert (answer.status, check) == (200, EXPORT[name])
        assert answer.headers["content-type"] == "application/json"
    assert (await gateway.ask("HEAD", base + "/network")).status == 200
    await gateway.get(base + "/account", 400)


async def test_views_stay_inside_the_export(gateway: Gateway) -> None:
    base = "/reference/v03/api"
    for path in (
        "/nothing",
        "/block",
        "/block/",
        "//network",
        "/../secret",
        "/%2e%2e/secret",
        "/..%2fsecret",
        "/./network",
        "/network%00",
        "/account?public_key=../network",
        "/account?public_key=..%2f..%2fsecret",
        "/block/5.json.json",
        "/network/network",
    ):
        await gateway.get(base + path, 404)


async def test_nothing_can_be_sent_to_the_reference_chain(gateway: Gateway) -> None:
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        answer = await gateway.ask(method, "/reference/v03/api/network")
        assert answer.status == 403
        check_answer(answer)


async def test_without_an_export_there_is_nothing(nursery: trio.Nursery, tmp_path: Path) -> None:
    gateway = await start_gateway(nursery, tmp_path, with_index=False)
    await gateway.get("/reference/v03/api/network", 404)
