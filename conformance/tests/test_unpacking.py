"""LZ4 frames are unpacked as the library does it; what contradicts itself is named."""

import os

import lz4.frame
import pytest

from conformance.frames import checksum_of
from conformance.unpacking import MOST, BadFrame, TooLarge, content_fault, unpacked

TEXT = b"a node, and one more node, and yet another node; " * 3000 + bytes(70_000)


@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("level", [0, 9])
@pytest.mark.parametrize("content", [b"", b"ab" * 20, TEXT, os.urandom(100_000) + TEXT])
def test_frames_of_the_library_are_unpacked(content: bytes, level: int, *, linked: bool) -> None:
    options = {"block_checksum": True, "content_checksum": True, "store_size": True}
    frame = lz4.frame.compress(
        content, compression_level=level, block_linked=linked, block_size=65_536, **options
    )
    assert unpacked(frame) == content
    assert unpacked(frame + frame) == 2 * content


def _framed(content: bytes, **options: bool) -> bytes:
    return bytes(lz4.frame.compress(content, store_size=False, **options))


def test_a_checksum_of_another_content_is_named() -> None:
    frame = bytearray(_framed(TEXT, content_checksum=True))
    assert content_fault(bytes(frame)) is None
    frame[-1] ^= 1
    assert content_fault(bytes(frame)) == "its checksum is that of another content"


def test_a_checksum_of_another_block_is_named() -> None:
    frame = bytearray(_framed(b"abc" * 9, block_checksum=True))
    frame[-5] ^= 1
    assert content_fault(bytes(frame)) == "the checksum of a block is that of another one"


def test_a_size_of_another_content_is_named() -> None:
    frame = bytearray(lz4.frame.compress(b"abc", store_size=True))
    frame[6] += 1
    frame[14] = checksum_of(bytes(frame[4:14])) >> 8 & 255
    assert content_fault(bytes(frame)) == "it says that it contains 4 bytes, and contains 3"


def test_what_is_cut_or_refers_to_nothing_is_named() -> None:
    frame = _framed(TEXT)
    with pytest.raises(BadFrame, match="are missing"):
        unpacked(frame[:-9])
    # No letter, and then a copy of what is five bytes before it.
    broken = b"\x00\x05\x00"
    head = frame[:7]
    with pytest.raises(BadFrame, match="refers to 5 bytes before"):
        unpacked(head + len(broken).to_bytes(4, "little") + broken + bytes(4))


def test_what_is_large_is_left_alone() -> None:
    bomb = _framed(bytes(MOST + 1))
    with pytest.raises(TooLarge):
        unpacked(bomb)
    assert content_fault(bomb) is None
