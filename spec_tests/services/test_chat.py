"""Chat templates, in their process: decision 0160."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest
import trio

from meshnode.domain.errors import InvalidRequest, Unsupported
from meshnode.model import chat_process
from meshnode.model.chat import ChatTemplate, Renderer, TemplateRefused
from meshnode.services.chat import ChatPrompts, serve_chat

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
USER: dict[str, Any] = {"role": "user", "content": "Hi 🙂"}


def render(source: str, **more: Any) -> str:
    return Renderer(ChatTemplate(source, **more)).render([USER])


def test_what_templates_expect_of_their_surroundings() -> None:
    assert render(CHATML) == "<|im_start|>user\nHi 🙂<|im_end|>\n<|im_start|>assistant\n"
    assert render("{{ bos_token }}{{ eos_token }}", tokens={"bos_token": "<s>"}) == "<s>"
    assert render("{{ {'b': 'é', 'a': 1} | tojson }}") == '{"b": "é", "a": 1}'
    assert render("{% for m in messages %}{% break %}{% endfor %}a") == "a"
    assert render("{% generation %}a{% endgeneration %}") == "a"
    assert len(render("{{ strftime_now('%Y') }}")) == 4
    assert render("  {%- if true %}\n a\n  {% endif %}\n") == " a\n"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{% include 'x' %}", "TypeError"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{% for i in range(200000) %}{% endfor %}", "OverflowError"),
        ("{% for i in range(99999) %}{{ 'x' * 100 }}{% endfor %}", "too long"),
        ("{% if %}", "malformed"),
    ],
)
def test_what_templates_may_not_do(source: str, reason: str) -> None:
    with pytest.raises(TemplateRefused, match=reason):
        render(source)


def test_which_templates_know_tools() -> None:
    assert not ChatTemplate(CHATML).knows_tools
    assert ChatTemplate("{% if tools %}{{ tools | tojson }}{% endif %}").knows_tools
    assert ChatTemplate(CHATML, tool_source="{{ tools }}").knows_tools
    assert not ChatTemplate("{% if %}").knows_tools


async def prompts(nursery: trio.Nursery, source: str) -> ChatPrompts:
    chat = ChatPrompts(ChatTemplate(source), frozenset({7}))
    await nursery.start(serve_chat, chat)
    return chat


async def test_a_conversation_becomes_a_prompt(nursery: trio.Nursery) -> None:
    chat = await prompts(nursery, CHATML)
    for _ in range(2):
        prompt = await chat.prompt([USER])
        assert prompt.text.startswith("<|im_start|>user\nHi 🙂")
        assert (prompt.special_tokens, prompt.end_tokens) == (False, frozenset({7}))
    with pytest.raises(Unsupported, match="tools"):
        await chat.prompt([USER], [{"type": "function"}])
    nursery.cancel_scope.cancel()


async def test_the_process_gets_none_of_the_nodes_variables(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MESHNODE_KEY_PASSPHRASE", "secret")
    chat = await prompts(nursery, CHATML)
    await chat.prompt([USER])
    [process] = _children()
    with open(f"/proc/{process}/environ", "rb") as file:  # noqa: ASYNC230 - /proc does not block
        assert b"MESHNODE" not in file.read()
    nursery.cancel_scope.cancel()


async def test_a_template_beyond_its_bounds_costs_its_own_request(nursery: trio.Nursery) -> None:
    source = (
        "{% set n = namespace(s='xx') %}"
        "{% if messages[0].content == 'grow' %}"
        "{% for i in range(40) %}{% set n.s = n.s ~ n.s %}{% endfor %}"
        "{% endif %}{{ messages[0].content }}"
    )
    chat = await prompts(nursery, source)
    with pytest.raises(InvalidRequest, match="memory"):
        await chat.prompt([{"role": "user", "content": "grow"}])
    assert (await chat.prompt([USER])).text == "Hi 🙂"
    # The process may die at any time.
    os.kill(_children()[0], 9)
    await trio.to_thread.run_sync(_wait_childless)
    assert (await chat.prompt([USER])).text == "Hi 🙂"
    nursery.cancel_scope.cancel()


@pytest.mark.slow
async def test_a_template_that_does_not_end_is_killed(nursery: trio.Nursery) -> None:
    source = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    chat = await prompts(nursery, source)
    with trio.fail_after(chat_process.RENDER_S + 20):
        with pytest.raises(InvalidRequest, match="too long"):
            await chat.prompt([USER])
    nursery.cancel_scope.cancel()


async def test_without_a_template_the_words_are_continued() -> None:
    chat = ChatPrompts(None, frozenset())
    prompt = await chat.prompt([{"role": "system", "content": "A story."}, USER])
    assert (prompt.text, prompt.special_tokens) == ("A story.\nHi 🙂", True)
    with pytest.raises(Unsupported, match="no chat template"):
        await chat.prompt([USER], [{"type": "function"}])


def _wait_childless() -> None:
    while _children():
        time.sleep(0.01)


def _children() -> list[int]:
    """Processes of this one that render templates and run."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as file:
                    fields = file.read().rsplit(")", 1)[1].split()
                with open(f"/proc/{entry}/cmdline", "rb") as file:
                    command = file.read()
            except OSError:
                continue
            mine = int(fields[1]) == os.getpid() and fields[0] != "Z"
            if mine and b"chat_process" in command:
                found.append(int(entry))
    return found
