"""A model's hash covers all that changes an answer, and a pin to it is kept (decision 0139)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from meshnode.config import build_config
from meshnode.domain.errors import StartupError
from meshnode.domain.identity import key_from_seed
from meshnode.model.config import DecoderConfig
from meshnode.model.documents import ModelUnreadable
from meshnode.model.files import TOKENIZER_FILE, open_files
from meshnode.model.manifest import (
    FILES,
    MANIFEST_FILE,
    WEIGHTS_ONLY_FORMAT,
    Manifest,
    WeightsOnly,
    file_digests,
    manifest_of_directory,
    read_manifest,
)
from meshnode.rpc.errors import CallFailed, Code
from meshnode.rpc.node_grpc import NodeServiceStub
from meshnode.services.model_source import find_model
from meshnode.services.weights import Fetcher
from spec_tests.services.weight_holders import OWN_ID, Holder, running


def permuted(source: Path, folder: Path) -> Path:
    """A model with the weights of ``source`` and a vocabulary whose tokens changed places."""
    shutil.copytree(source, folder)
    path = folder / TOKENIZER_FILE
    document = json.loads(path.read_text())
    vocabulary = document["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    path.write_text(json.dumps(document))
    return folder


async def test_a_pinned_model_has_its_own_tokenizer(directory: Path, tmp_path: Path) -> None:
    good, false = Holder(directory, range(4)), Holder(permuted(directory, tmp_path / "m"), range(4))
    assert good.manifest.weights_hash == false.manifest.weights_hash
    pinned = good.manifest.model_hash
    async with running() as nodes:
        port = await nodes.add(false)
        fetcher = Fetcher(nodes.connect, OWN_ID, 8000, tmp_path / "fetched")
        with pytest.raises(StartupError, match="another model"):
            await fetcher.offer([("127.0.0.1", port)], pinned)
        assert not fetcher.home(pinned).exists()
        # The tracker shows the right manifest, and sends another tokenizer.
        false._weights._files._manifest = good.manifest
        with pytest.raises(ModelUnreadable, match=r"tokenizer\.json is not the one"):
            await fetcher._offer_of("127.0.0.1", port, pinned)
        assert not (fetcher.home(pinned) / TOKENIZER_FILE).exists()


async def test_an_earlier_pin_is_refused_and_the_new_one_named(
    directory: Path, tmp_path: Path
) -> None:
    async with running() as nodes:
        holder = Holder(directory, range(4))
        port = await nodes.add(holder)
        fetcher = Fetcher(nodes.connect, OWN_ID, 8000, tmp_path)
        earlier = holder.manifest.weights_hash
        with pytest.raises(
            StartupError, match=f"weights alone; .* is {holder.manifest.model_hash}:"
        ):
            await fetcher.offer([("127.0.0.1", port)], earlier)


async def test_a_directory_is_held_to_the_pin_too(directory: Path, tmp_path: Path) -> None:
    right = Holder(directory, range(4)).manifest.model_hash
    key = key_from_seed("07" * 32)
    values = {"data_dir": str(tmp_path), "model_hash": right}
    source = await find_model(build_config({**values, "model": str(directory)}), key, no_node)
    assert source.manifest.model_hash == right
    other = permuted(directory, tmp_path / "m")
    with pytest.raises(StartupError, match="another model"):
        await find_model(build_config({**values, "model": str(other)}), key, no_node)


async def no_node(host: str, port: int) -> NodeServiceStub:
    raise CallFailed(Code.UNAVAILABLE, "there is none")


async def test_weights_that_an_earlier_version_fetched_are_taken_over(
    directory: Path, tmp_path: Path
) -> None:
    async with running() as nodes:
        holder = Holder(directory, range(4))
        port = await nodes.add(holder)
        fetcher = Fetcher(nodes.connect, OWN_ID, 8000, tmp_path)
        offer = await fetcher.offer([("127.0.0.1", port)])
        await fetcher.layers(offer, range(4))
        manifest = offer.manifest
        earlier = fetcher.home(manifest.model_hash).rename(fetcher.home(manifest.weights_hash))
        document = {**manifest.document(), "format": WEIGHTS_ONLY_FORMAT}
        document["model_hash"] = document.pop("weights_hash")
        del document["files"]
        (earlier / MANIFEST_FILE).write_text(json.dumps(document))
        with pytest.raises(WeightsOnly):
            read_manifest((earlier / MANIFEST_FILE).read_bytes())
        (earlier / "generation_config.json").write_text('{"eos_token_id": 7}')
        # Without a tracker the folder is used as it is: the added file counts as the model's.
        config = DecoderConfig.read(earlier / "config.json")
        assert manifest_of_directory(earlier, config, tmp_path / "c").files != manifest.files
        holder.asked.clear()
        await fetcher.layers(await fetcher.offer([("127.0.0.1", port)]), range(4))
        assert holder.asked == ["manifest", "config.json", "tokenizer.json"]
        home = fetcher.home(manifest.model_hash)
        assert manifest_of_directory(home, config, tmp_path / "c") == manifest
        assert not earlier.exists()


def test_a_fetched_file_that_was_changed_on_the_disk_is_refused(
    directory: Path, tmp_path: Path
) -> None:
    manifest = Holder(directory, range(4)).manifest
    model = permuted(directory, tmp_path / "m")
    (model / MANIFEST_FILE).write_text(json.dumps(manifest.document()))
    with pytest.raises(ModelUnreadable, match=r"tokenizer\.json is not the one"):
        manifest_of_directory(model, DecoderConfig.read(model / "config.json"), tmp_path / "c")


@pytest.mark.parametrize("name", FILES)
def test_each_small_file_changes_the_hash(directory: Path, tmp_path: Path, name: str) -> None:
    before = Holder(directory, range(4)).manifest
    model = tmp_path / "m"
    shutil.copytree(directory, model)
    with (model / name).open("a") as file:
        file.write("\n")
    after = Manifest(before.tensors, file_digests(open_files(model)))
    assert after.model_hash != before.model_hash
    assert after.weights_hash == before.weights_hash


def damaged(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {**document, "format": "other"}
    yield {**document, "model_hash": "00" * 32}
    yield {**document, "weights_hash": "00" * 32}
    yield {**document, "files": {**document["files"], "config.json": "00" * 32}}
    yield {**document, "files": {"../config.json": "00" * 32}}
    yield {**document, "files": []}
    yield {**document, "tensors": document["tensors"][1:]}
    yield {**document, "tensors": "none"}
    yield {}


def test_a_damaged_manifest_is_refused(directory: Path) -> None:
    document = Holder(directory, range(4)).manifest.document()
    assert read_manifest(json.dumps(document).encode()).model_hash == document["model_hash"]
    for broken in damaged(document):
        with pytest.raises(ModelUnreadable):
            read_manifest(json.dumps(broken).encode())
    with pytest.raises(ModelUnreadable):
        read_manifest(b"\xff")
