"""Commands for a shell that send HTTP requests again, as a record shows them."""

import shlex
from collections.abc import Iterable


def curl(
    method: str, url: str, authorization: tuple[str, bool] | None, kind: str | None,
    content: bytes | None, others: Iterable[tuple[str, str]] = (),
) -> str:  # fmt: skip
    """Return a command that sends a request; ``kind`` is its Content-Type.

    ``authorization`` is a header, and whether it has a shell variable in it; ``others`` are other
    headers.
    """
    words = ["curl", "-sS", "-i", "-N"]
    if method != "GET":
        words += ["-X", method]
    if authorization is not None:
        header = f"Authorization: {authorization[0]}"
        words += ["-H", f'"{header}"' if authorization[1] else shlex.quote(header)]
    if kind:
        words += ["-H", shlex.quote(f"Content-Type: {kind}")]
    for name, value in others:
        words += ["-H", shlex.quote(f"{name}: {value}")]
    prefix = ""
    if content is not None:
        try:
            text = content.decode()
        except UnicodeDecodeError:
            text = None
        if text is not None and "\0" not in text:
            words += ["--data-raw", shlex.quote(text)]
        else:
            octal = "".join(f"\\{byte:03o}" for byte in content)
            prefix = f"printf '{octal}' | "
            words += ["--data-binary", "@-"]
    return prefix + " ".join([*words, shlex.quote(url)])


def in_turn(commands: Iterable[str]) -> str:
    """Return one command that does the same as several, on one connection."""
    first, *others = commands
    return first + "".join(f" --next{other.removeprefix('curl')}" for other in others)
