"""Section 2.3: a message that the operator hands to the suite as a file, to be sent as it is.

Invariants: no more is read than a message may have; what decodes to nothing documented is refused;
the content is sent and never written down: a record names the file, its size and its SHA-256.
"""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from conformance import messages

# Section 8: no message is larger.
MAX_MESSAGE_BYTES = 100 * 1024 * 1024


class BadFile(Exception):
    """The file is not there, too large, or holds no such message."""


@dataclass(frozen=True)
class MessageFile:
    """The bytes of one message, and the path that they were read from."""

    path: str
    content: bytes = field(repr=False)

    @property
    def sha256(self) -> str:
        """Give the digest of the content, hexadecimal."""
        return hashlib.sha256(self.content).hexdigest()


def read_bytes(path: str) -> bytes:
    """Read a file that is no larger than a message, or raise `BadFile`."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_MESSAGE_BYTES + 1)
    except (OSError, ValueError) as error:
        raise BadFile(f"{path}: {error}") from None
    if len(content) > MAX_MESSAGE_BYTES:
        raise BadFile(f"{path}: larger than a message may be, {MAX_MESSAGE_BYTES} bytes")
    return content


def read_message(path: str, name: str) -> MessageFile:
    """Read a file that holds one serialized message of this name, or raise `BadFile`."""
    content = read_bytes(path)
    try:
        message = messages.parse(name, content)
    except messages.BadMessage as error:
        raise BadFile(f"{path}: no {name}: {error}") from None
    # Any bytes may happen to be fields that the document does not have.
    if not message.ListFields():
        raise BadFile(f"{path}: no {name}: none of its fields is there")
    return MessageFile(path, content)
