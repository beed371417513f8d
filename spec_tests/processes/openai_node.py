"""A node for clients of OpenAI's interface: the default model, with a chat template for tools."""

from __future__ import annotations

import shutil
from pathlib import Path

from meshnode.model.loading import DEFAULT_MODEL

MODEL = "chatty"
"""The model's id."""
TEMPLATE = """\
{{- bos_token -}}
{%- if tools %}{{ tools | tojson }}{{ '\\n' }}{% endif -%}
{%- for message in messages -%}
{{ message.content }}
{%- for call in message.tool_calls or [] %}{{ call.function.arguments | tojson }}{% endfor -%}
{{ '\\n' }}
{%- endfor -%}
"""
UNUSUAL = "naïve café 🙂 東京"
"""Characters of one to four bytes, each of several tokens."""


def make_chat_model(directory: Path) -> Path:
    """Write the model into a new folder."""
    model = directory / MODEL
    shutil.copytree(DEFAULT_MODEL, model)
    (model / "chat_template.jinja").write_text(TEMPLATE)
    return model
