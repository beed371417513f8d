"""Interface 4.2, ``/artifacts/sha256/<hex>``: bytes by their hash, which is checked on adding."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.errors import StartupError
from meshnode.edges.http_artifacts import asked_range
from meshnode.services.artifacts import MANIFEST_FORMAT, Artifacts
from spec_tests.edges.http_server import Answer
from spec_tests.edges.native_gateway import Gateway, check_answer, start_gateway

DATA = bytes(range(256)) * 4000
"""Larger than one read."""
SHA256 = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
async def gateway(nursery: trio.Nursery, tmp_path: Path) -> Gateway:
    gateway = await start_gateway(nursery, tmp_path, with_index=False)
    path = write(tmp_path / "weights.bin", DATA)
    await gateway.artifacts.take_in(path)
    return gateway


def write(path: Path, data: bytes) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    return path


def manifest(folder: Path, *entries: Mapping[str, Any], form: str = MANIFEST_FORMAT) -> Path:
    document = {"format": form, "artifacts": list(entries)}
    write(folder / "manifest.json", json.dumps(document).encode())
    return folder


async def get(gateway: Gateway, sha256: str = SHA256, **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await gateway.ask("GET", f"/artifacts/sha256/{sha256}", headers=named)


async def test_a_file_is_served_whole_and_may_be_kept_for_ever(gateway: Gateway) -> None:
    answer = await get(gateway)
    assert (answer.status, answer.body) == (200, DATA)
    assert answer.headers["etag"] == f'"{SHA256}"'
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert answer.headers["accept-ranges"] == "bytes"
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["access-control-allow-origin"] == "*"
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_artifacts_in_memory_are_served_like_files(gateway: Gateway) -> None:
    genesis = gateway.ledger.genesis_bytes
    answer = await get(gateway, gateway.ledger.genesis_sha256)
    assert (answer.status, answer.body) == (200, genesis)
    answer = await get(gateway, gateway.ledger.genesis_sha256, Range="bytes=1-4")
    assert (answer.status, answer.body) == (206, genesis[1:5])


async def test_ranges_resume_a_download(gateway: Gateway) -> None:
    size = len(DATA)
    for header, part in {
        "bytes=0-0": DATA[:1],
        "bytes=5-": DATA[5:],
        "bytes=300000-700000": DATA[300_000:700_001],
        "bytes=-3": DATA[-3:],
        f"bytes={size - 1}-{size + 9}": DATA[-1:],
        f"bytes=-{size + 9}": DATA,
    }.items():
        answer = await get(gateway, Range=header)
        assert (answer.status, answer.body) == (206, part), header
        first = len(DATA) - len(part) if header.startswith("bytes=-") else DATA_START[header]
        last = first + len(part) - 1
        assert answer.headers["content-range"] == f"bytes {first}-{last}/{size}"
        assert int(answer.headers["content-length"]) == len(part)
    for header in (f"bytes={size}-", "bytes=-0"):
        answer = await get(gateway, Range=header)
        assert (answer.status, answer.body) == (416, b"")
        assert answer.headers["content-range"] == f"bytes */{size}"
    for header in ("bytes=0-1,4-5", "items=0-1", "bytes=x-y", "bytes=5-2", "nonsense", "bytes=-"):
        answer = await get(gateway, Range=header)
        assert (answer.status, answer.body) == (200, DATA), header


DATA_START = {
    "bytes=0-0": 0,
    "bytes=5-": 5,
    "bytes=300000-700000": 300_000,
    f"bytes={len(DATA) - 1}-{len(DATA) + 9}": len(DATA) - 1,
}


async def test_a_matching_etag_is_answered_with_304(gateway: Gateway) -> None:
    for tag in (f'"{SHA256}"', f'W/"{SHA256}"', f'"other", "{SHA256}"', "*"):
        answer = await get(gateway, If_None_Match=tag)
        assert (answer.status, answer.body) == (304, b"")
        assert answer.headers["etag"] == f'"{SHA256}"'
    assert (await get(gateway, If_None_Match='"other"')).status == 200
    part = await get(gateway, Range="bytes=0-3", If_Range=f'"{SHA256}"')
    assert (part.status, part.body) == (206, DATA[:4])
    # The client must not join a range of this file to one of another, so it gets the whole file.
    whole = await get(gateway, Range="bytes=0-3", If_Range='"other"')
    assert (whole.status, whole.body) == (200, DATA)


async def test_head_says_the_same_without_the_bytes(gateway: Gateway) -> None:
    answer = await gateway.ask("HEAD", f"/artifacts/sha256/{SHA256}")
    assert (answer.status, answer.body) == (200, b"")
    assert answer.headers["content-length"] == str(len(DATA))
    assert answer.headers["etag"] == f'"{SHA256}"'


async def test_nothing_is_found_but_by_a_listed_hash(gateway: Gateway) -> None:
    for name in (
        "0" * 64,
        SHA256.upper(),
        SHA256[:-1],
        SHA256 + "0",
        "..%2f..%2fetc%2fpasswd",
        "%2e%2e",
        SHA256 + "%00",
        SHA256 + "%0a",
    ):
        answer = await get(gateway, name)
        assert answer.status == 404, name
        check_answer(answer)


async def test_a_file_that_has_changed_is_not_served_any_more(
    gateway: Gateway, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "weights.bin", DATA[:-1])
    assert (await get(gateway)).status == 404
    assert "weights.bin has changed" in caplog.text
    write(tmp_path / "weights.bin", DATA)
    await gateway.artifacts.take_in(tmp_path / "weights.bin")
    assert (await get(gateway)).status == 200
    (tmp_path / "weights.bin").unlink()
    assert (await get(gateway)).status == 404


async def test_a_client_that_leaves_leaves_no_file_open(gateway: Gateway) -> None:
    stream = await trio.open_tcp_stream(*gateway.address)
    line = f"GET /artifacts/sha256/{SHA256} HTTP/1.1\r\nHost: node\r\n\r\n"
    await stream.send_all(line.encode())
    await stream.receive_some(10)
    await stream.aclose()
    assert (await get(gateway)).status == 200


# Adding files


async def test_files_that_a_manifest_lists_are_taken_in(tmp_path: Path) -> None:
    write(tmp_path / "parts" / "one", b"one")
    write(tmp_path / "two", b"two")
    entries = [
        {"path": "parts/one", "sha256": hashlib.sha256(b"one").hexdigest(), "size": 3},
        {"path": "two", "sha256": hashlib.sha256(b"two").hexdigest(), "size": 3},
    ]
    artifacts = Artifacts()
    assert await artifacts.take_in_manifest(manifest(tmp_path, *entries)) == 2
    assert [artifact.name for artifact in artifacts.listed()] == ["one", "two"]


async def test_unreadable_artifacts_are_left_out_of_a_mirror(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    artifacts, there = Artifacts(), write(tmp_path / "there", b"x")
    await artifacts.take_in_all([tmp_path / "missing", there, there])
    assert [artifact.name for artifact in artifacts.listed()] == ["there"]
    assert "missing" in caplog.text


@pytest.mark.parametrize(
    ("name", "sha256", "size"),
    [
        ("file", "0" * 64, 4),
        ("file", hashlib.sha256(b"data").hexdigest(), 5),
        ("file", hashlib.sha256(b"data").hexdigest().upper(), 4),
        ("missing", hashlib.sha256(b"data").hexdigest(), 4),
        ("../outside", hashlib.sha256(b"data").hexdigest(), 4),
        ("link", hashlib.sha256(b"data").hexdigest(), 4),
        ("/etc/hostname", hashlib.sha256(b"data").hexdigest(), 4),
        ("folder", hashlib.sha256(b"data").hexdigest(), 4),
        (5, hashlib.sha256(b"data").hexdigest(), 4),
        ("file", hashlib.sha256(b"data").hexdigest(), True),
    ],
)
async def test_a_manifest_that_is_wrong_in_part_is_refused(
    tmp_path: Path, name: Any, sha256: str, size: Any
) -> None:
    mirror = tmp_path / "mirror"
    write(mirror / "file", b"data")
    write(tmp_path / "outside", b"data")
    lay_out(mirror)
    with pytest.raises(StartupError):
        await Artifacts().take_in_manifest(
            manifest(mirror, {"path": name, "sha256": sha256, "size": size})
        )


def lay_out(mirror: Path) -> None:
    (mirror / "folder").mkdir()
    (mirror / "link").symlink_to(mirror.parent / "outside")


async def test_malformed_manifests_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="cannot read"):
        await Artifacts().take_in_manifest(tmp_path)
    for text in (b"", b"[]", b"{}", b'{"format":"other","artifacts":[]}'):
        write(tmp_path / "manifest.json", text)
        with pytest.raises(StartupError, match="no manifest"):
            await Artifacts().take_in_manifest(tmp_path)
    with pytest.raises(StartupError, match="cannot read"):
        await Artifacts().take_in(tmp_path / "missing")


@given(st.text(max_size=30) | st.from_regex(r"bytes=[0-9]{0,4}-[0-9]{0,4}", fullmatch=True))
def test_a_range_is_part_of_the_whole(header: str) -> None:
    size = 1000
    asked = asked_range(header, size)
    if asked:
        assert 0 <= asked.start < asked.stop <= size


@given(st.integers(0, 2000), st.integers(0, 2000))
def test_a_range_is_what_was_asked_for(first: int, last: int) -> None:
    asked = asked_range(f"bytes={first}-{last}", 1000)
    if last < first:
        assert asked is None
    else:
        assert list(asked or ()) == [n for n in range(first, last + 1) if n < 1000]
