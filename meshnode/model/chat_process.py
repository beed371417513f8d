"""The process that renders chat templates: ``python -m meshnode.model.chat_process``.

The first line of its input is the template, each further one a conversation; it answers each with a
line: ``{"text"}``, or ``{"refused"}`` with the reason. It ends with its input, and it is killed by
its own timer when a template does not end, or by its limit of memory.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from collections.abc import Callable

from meshnode.model.chat import Renderer, TemplateRefused, decode_template

MEMORY_BYTES = 512 << 20
"""Address space, the interpreter included."""
RENDER_S = 5.0
"""After this the process is killed, whether or not the node is still there to do it."""


def main() -> None:
    """Serve until the input ends."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Ctrl-C on a terminal reaches the whole group; the node decides when this process ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    template = decode_template(sys.stdin.buffer.readline())
    refused = ""
    try:
        with _Timer():
            renderer = Renderer(template)
    except TemplateRefused as error:
        refused = str(error)
    for line in sys.stdin.buffer:
        conversation = json.loads(line)
        _answer(refused, lambda: renderer.render(**conversation))  # noqa: B023 - called at once


def _answer(refused: str, render: Callable[[], str]) -> None:
    try:
        if refused:
            raise TemplateRefused(refused)
        with _Timer():
            answer = {"text": render()}
    except (TemplateRefused, MemoryError) as error:
        answer = {"refused": str(error) or "the chat template takes too much memory"}
    sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
    sys.stdout.buffer.flush()


class _Timer:
    def __enter__(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, RENDER_S)

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)


if __name__ == "__main__":
    main()
