"""Interface 2.3: a message in a file of the operator, which the suite sends unchanged.

Invariants: at most the maximum size of a message is read; content without any documented field is
refused; the content is sent but never recorded: a record names the file, its size and its SHA-256.
"""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from conformance import messages

# Interface 8: no message is larger.
MAX_MESSAGE_BYTES = 100 * 1024 * 1024


class BadFile(Exception):
    """The file does not exist, is too large, or contains no such message."""


@dataclass(frozen=True)
class MessageFile:
    """The bytes of one message, and the path that they were read from."""

    path: str
    content: bytes = field(repr=False)

    @property
    def sha256(self) -> str:
        """Return the hexadecimal digest of the content."""
        return hashlib.sha256(self.content).hexdigest()


def read_bytes(path: str) -> bytes:
    """Read a file that is no larger than a message, or raise `BadFile`."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_MESSAGE_BYTES + 1)
    except (OSError, ValueError) as error:
        raise BadFile(f"{path}: {error}") from None
    if len(content) > MAX_MESSAGE_BYTES:
        raise BadFile(f"{path}: larger than the maximum of {MAX_MESSAGE_BYTES} bytes")
    return content


def read_message(path: str, name: str) -> MessageFile:
    """Read a file that holds one serialized message of this name, or raise `BadFile`."""
    content = read_bytes(path)
    try:
        message = messages.parse(name, content)
    except messages.BadMessage as error:
        raise BadFile(f"{path}: not a {name}: {error}") from None
    # Arbitrary bytes may happen to parse as fields that the document does not have.
    if not message.ListFields():
        raise BadFile(f"{path}: not a {name}: it has none of its fields")
    return MessageFile(path, content)
