"""What a user does with the page of one node."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from meshnode.domain.identity import key_from_seed
from spec_tests.browser.conftest import Visits
from spec_tests.processes.nodes import TOKEN, Node, issue_token, wait_until

pytestmark = pytest.mark.browser

PAGES = ("chat", "network", "training", "chain", "key", "node")


def test_a_newcomer_chats(visits: Visits, node: Node) -> None:
    visit = visits.open(node)
    visit.page.get_by_role("button", name="Once upon a time").click()
    # Without a token the page asks for one, and says why.
    assert visit.page.get_by_role("dialog").is_visible()
    visit.text("needs a token").wait_for()
    visit.page.get_by_label("Token", exact=True).fill(TOKEN)
    visit.button("Use this token").click()
    assert len(visit.ask("Once upon a time")) > 20
    visit.page.get_by_text("What this node took").click()
    visit.text("layers 0").wait_for()
    assert len(visit.ask("And then?")) > 5
    assert visit.page.locator(".said").count() == 2
    visit.button("New chat").click()
    assert visit.page.locator(".said").count() == 0
    assert visit.hosts == {f"127.0.0.1:{node.port}"}


def test_a_token_stays_in_its_tab_and_out_of_addresses(visits: Visits, node: Node) -> None:
    visit = visits.open(node)
    urls: list[str] = []
    visit.page.on("request", lambda request: urls.append(request.url))
    visit.enter("wrong-token")
    visit.text("does not accept this token").wait_for()
    visit.page.get_by_label("Token", exact=True).fill(TOKEN)
    visit.button("Use this token").click()
    visit.go("node")
    visit.text("Wallet of this token").wait_for()
    kept = visit.page.evaluate("[JSON.stringify(sessionStorage), JSON.stringify(localStorage)]")
    assert TOKEN in kept[0]
    assert TOKEN not in kept[1]
    assert not any(TOKEN in url for url in urls)
    visit.button("Token").click()
    visit.button("Forget it").click()
    visit.text("shown to whoever has a token").wait_for()


def test_an_answer_is_stopped_and_failures_say_what_to_do(visits: Visits, node: Node) -> None:
    poor = issue_token(node.data_dir, "poor")
    visit = visits.open(node, token=poor)
    visit.ask("Hello")
    visit.text("Ask for fewer tokens").wait_for()
    assert visit.button("Try again").is_visible()


def test_the_operator_changes_a_setting_and_reads_the_log(visits: Visits, node: Node) -> None:
    visit = visits.open(node, "node", token=TOKEN)
    visit.page.get_by_label("training.batch_size").fill("9")
    visit.button("Save changes").click()
    visit.text("Saved: training.batch_size").wait_for()
    assert node.ask("GET", "/api/v1/config").json["training"]["batch_size"] == 9
    visit.page.get_by_label("training.batch_size").fill("0")
    visit.page.locator("main form").evaluate("form => form.noValidate = true")
    visit.button("Save changes").click()
    visit.page.locator("[role=alert]", has_text="training.batch_size").wait_for()
    visit.page.locator("ol.log li").first.wait_for()


def test_a_customer_sees_the_wallet_but_not_the_log(visits: Visits, node: Node) -> None:
    visit = visits.open(node, "node", token=issue_token(node.data_dir, "customer"))
    visit.text("Wallet of this token").wait_for()
    visit.text("admin").wait_for()
    assert visit.page.locator("ol.log").count() == 0


def test_blocks_come_and_one_is_opened(visits: Visits, node: Node) -> None:
    visit = visits.open(node, "chain")
    visit.page.get_by_role("button", name="Block 1", exact=True).click()
    visit.text("This block has no transactions").wait_for()
    account = node.ask("GET", "/api/validators", token=None).json["validators"][0]["owner"]
    visit.page.get_by_label("Public key").fill(account)
    visit.button("Look up").click()
    visit.text("Next nonce").wait_for()
    height = int(visit.tile("Height").replace(",", ""))
    wait_until(lambda: int(visit.tile("Height").replace(",", "")) > height)


def test_a_key_of_ones_own_pays_for_a_question(visits: Visits, node: Node, tmp_path: Path) -> None:
    visit = visits.open(node, "key")
    visit.button("Make a key").click()
    with visit.page.expect_download() as download:
        visit.button("Save a copy").click()
    file = tmp_path / "key.json"
    download.value.save_as(file)
    saved = json.loads(file.read_text())
    assert key_from_seed(saved["seed"]).public_key == saved["public_key"]
    assert saved["public_key"] in visit.page.content()
    body = {"to": saved["public_key"], "amount": 0.5, "memo": ""}
    assert node.ask("POST", "/api/v1/wallet/send", body).status == 200

    visit.button("Look again").click()
    visit.page.locator("dd", has_text="0.5").first.wait_for()
    visit.page.get_by_label("Question", exact=True).fill("What is “this”? \x7f é 😀")
    visit.page.get_by_label("Price ceiling").fill("0.001")
    visit.button("See the price").click()
    visit.text("above your ceiling of 0.001").wait_for()
    assert visit.page.evaluate("localStorage.getItem('meshnode.outbox')") is None

    wait_until(lambda: node.ask("GET", "/api/inference", token=None).json["provider_online"])
    visit.page.get_by_label("Price ceiling").fill("0.1")
    visit.page.get_by_label("Most tokens").fill("4")
    visit.button("See the price").click()
    visit.text("Sign and pay?").wait_for()
    visit.button("Sign and send").click()
    # The page may be closed while the question is open: it is asked for again afterwards.
    visit.page.reload()
    visit.page.get_by_role("heading", name="Answer", exact=True).wait_for()
    assert node.ask("GET", f"/api/account?public_key={saved['public_key']}").json["nonce"] == 1
    visit.button("Remove").click()
    visit.button("Remove it").click()
    visit.page.set_input_files("input[type=file]", file)
    visit.text(saved["public_key"]).wait_for()


def test_signatures_are_the_librarys(visits: Visits, node: Node) -> None:
    """The same bytes as the node's library makes, and the same canonical JSON."""
    from meshnode.domain.chain.canonical import encode
    from meshnode.domain.identity import private_key

    visit = visits.open(node)
    bodies = [{"b": [1, "é\x7f \u2028😀/"], "a": {"z": None, "y": True}}, {"n": 2**53 - 1}]
    for number, body in enumerate(bodies * 4):
        seed = hashlib.sha256(bytes([number])).hexdigest()
        made = visit.page.evaluate(
            """async ([seed, body]) => {
              const { canonical, publicKey, sign } = await import("/page/signing.js");
              const text = canonical(body);
              return [text, publicKey(seed), sign(seed, new TextEncoder().encode(text))];
            }""",
            [seed, body],
        )
        raw = encode(body)  # type: ignore[arg-type]
        expected = [raw.decode(), key_from_seed(seed).public_key, private_key(seed).sign(raw).hex()]
        assert made == expected


def test_everything_by_keyboard(visits: Visits, node: Node) -> None:
    visit = visits.open(node)
    page = visit.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    reached = []
    for _ in range(12):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.textContent.trim()"))
    for name in ("Enter token", "Network", "Training", "Chain", "Your key", "Node"):
        assert name in reached
    page.get_by_role("link", name="Training").focus()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Training", exact=True).wait_for()
    assert page.evaluate("document.activeElement.id") == "main"
    page.get_by_role("button", name="Enter token").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "token-field"
    page.keyboard.press("Escape")
    assert page.get_by_role("dialog").count() == 0


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing_and_nothing_is_cut_off(
    visits: Visits, node: Node, name: str, dark: bool
) -> None:
    visit = visits.open(node, name, token=TOKEN, dark=dark)
    if name == "chat":
        visit.ask("Once upon a time")
    if name == "key":
        visit.button("Make a key").click()
    if name == "node":
        visit.page.locator("ol.log li").first.wait_for()
    assert visit.findings() == []
    for width in (360, 768, 1280, 2560):
        visit.page.set_viewport_size({"width": width, "height": 800})
        assert visit.overflow() <= 0, width
    visit.page.set_viewport_size({"width": 360, "height": 740})
    assert visit.findings() == []


def test_join_has_the_same_style_and_no_findings(visits: Visits, node: Node) -> None:
    visit = visits.open(node)
    visit.page.goto(f"{visit.base}/join")
    assert visit.page.evaluate("document.styleSheets.length") == 2
    assert visit.findings() == []
    visit.page.set_viewport_size({"width": 360, "height": 740})
    assert visit.overflow() <= 0


def test_a_node_that_is_gone_and_comes_back(visits: Visits, tmp_path: Path) -> None:
    from spec_tests.processes.nodes import running_node

    with running_node(tmp_path / "node") as node:
        visit = visits.open(node, "network", token=TOKEN)
        port = node.port
        node.process.kill()
        node.process.wait()
        visit.text("Not connected, trying again").wait_for()
    with running_node(tmp_path / "node", port=port):
        visit.text("Running").wait_for()
        assert visit.tile("Layers here") == "8 of 8"
