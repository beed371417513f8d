"""GetWeights: what is served, what is refused, and a node fetching its layers (interface 4.3)."""

from __future__ import annotations

import errno
import json
import socket
from pathlib import Path
from typing import Any

import pytest
import torch
import trio

from meshnode.config import build_config
from meshnode.domain.errors import StartupError
from meshnode.domain.identity import key_from_seed
from meshnode.model import transfer
from meshnode.model.loading import load_model
from meshnode.model.manifest import (
    read_manifest,
)
from meshnode.model.transfer import read_tensors
from meshnode.rpc.errors import CallFailed, Code
from meshnode.services import weights
from meshnode.services.model_source import CURRENT_FILE, MODELS_FOLDER, find_model
from meshnode.services.weights import Fetcher, ask_coverage, missing_tensors
from spec_tests.model.gguf_files import write_gguf
from spec_tests.services.weight_holders import OWN_ID, Holder, ask, running, told


async def test_layers_travel_under_their_checkpoint_names(directory: Path) -> None:
    async with running() as nodes:
        port = await nodes.add(Holder(directory, range(4)))
        two = read_tensors(await ask(nodes, port, "1-2"))
        assert {name.split(".")[2] for name in two} == {"1", "2"}
        manifest = read_manifest(await ask(nodes, port, "manifest"))
        for name, tensor in two.items():
            manifest.check(name, tensor)
        head = read_tensors(await ask(nodes, port, "head"))
        embedding = read_tensors(await ask(nodes, port, "embedding"))
        layers = read_tensors(await ask(nodes, port, "0-3"))
        assert layers.keys() | head.keys() | embedding.keys() == manifest.tensors.keys()
        rows = read_tensors(await ask(nodes, port, "model.embed_tokens.weight[3:5]"))
        whole = embedding["model.embed_tokens.weight"]
        assert torch.equal(rows["model.embed_tokens.weight"], whole[3:5])
        assert json.loads(await ask(nodes, port, "config.json"))["num_hidden_layers"] == 4


@pytest.mark.parametrize(
    ("unit", "code"),
    [
        ("2-3", Code.NOT_FOUND),
        ("1-2", Code.NOT_FOUND),
        ("head", Code.NOT_FOUND),
        ("model.layers.3.input_layernorm.weight", Code.NOT_FOUND),
        ("4", Code.INVALID_ARGUMENT),
        ("1-0", Code.INVALID_ARGUMENT),
        ("", Code.INVALID_ARGUMENT),
        ("../config.json", Code.INVALID_ARGUMENT),
        ("model.safetensors", Code.INVALID_ARGUMENT),
        ("model.embed_tokens.weight[5:5]", Code.INVALID_ARGUMENT),
        ("model.embed_tokens.weight[0:99999]", Code.INVALID_ARGUMENT),
        ("generation_config.json", Code.INVALID_ARGUMENT),
    ],
)
async def test_units_that_are_missing_or_malformed_are_refused(
    directory: Path, unit: str, code: Code
) -> None:
    async with running() as nodes:
        port = await nodes.add(Holder(directory, range(2)))
        with pytest.raises(CallFailed) as failure:
            await ask(nodes, port, unit)
        assert failure.value.code is code


async def test_a_unit_that_is_too_large_is_refused_with_advice(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "MAX_BYTES", 64 * 1024)
    async with running() as nodes:
        port = await nodes.add(Holder(directory, range(4)))
        with pytest.raises(CallFailed, match="single layer, or single tensors") as failure:
            await ask(nodes, port, "0-3")
        assert failure.value.code is Code.INVALID_ARGUMENT
        with pytest.raises(CallFailed, match=r"ask for rows: (\S+)") as failure:
            await ask(nodes, port, "model.embed_tokens.weight")
        advice = failure.value.message.rsplit(" ", 1)[1]
        assert "model.embed_tokens.weight" in read_tensors(await ask(nodes, port, advice))


async def test_a_node_fetches_its_layers_from_those_that_hold_them(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "MAX_BYTES", 16 * 1024)  # so that large tensors come in rows
    async with running() as nodes:
        first, second = Holder(directory, range(2)), Holder(directory, range(2, 4))
        second_port = await nodes.add(second)
        first.peers = [told(second_port, second)]
        port = await nodes.add(first)
        fetcher = Fetcher(nodes.connect, OWN_ID, 8000, tmp_path)
        offer = await fetcher.offer([("127.0.0.1", port)])
        assert offer.coverage() == [1, 1, 1, 1]
        assert await ask_coverage(nodes.connect, [("127.0.0.1", port)], 4) == [1, 1, 1, 1]
        counts: list[tuple[int, int]] = []
        await fetcher.layers(offer, range(1, 4), lambda done, total: counts.append((done, total)))
        assert counts[0][0] == 0
        assert counts[-1][0] == counts[-1][1]
        fetched = load_model(fetcher.home(offer.manifest.model_hash), range(1, 4))
        own = load_model(directory, range(1, 4))
        states = torch.randn(1, 5, 64)
        assert torch.equal(fetched.decoder(states), own.decoder(states))
        # The fetched files can be served in turn, under the same model hash.
        third = Holder(fetcher.home(offer.manifest.model_hash), range(1, 4))
        assert third.manifest.model_hash == first.manifest.model_hash
        assert read_tensors(await ask(nodes, await nodes.add(third), "2"))


async def test_a_gguf_file_is_fetched_as_the_directory_that_it_stands_for(
    directory: Path, tmp_path: Path
) -> None:
    path = write_gguf(directory, tmp_path / "model.gguf")
    async with running() as nodes:
        holder = Holder(path, range(4))
        port = await nodes.add(holder)
        fetcher = Fetcher(nodes.connect, OWN_ID, 8000, tmp_path)
        offer = await fetcher.offer([("127.0.0.1", port)])
        await fetcher.layers(offer, range(4))
        home = fetcher.home(offer.manifest.model_hash)
        fetched, own = load_model(home), load_model(path)
        tokens = torch.tensor([[1, 2, 3, 4]])
        assert torch.equal(fetched.decoder(tokens), own.decoder(tokens))
        assert fetched.tokenizer.encode("A node") == own.tokenizer.encode("A node")
        assert fetched.eos_token_ids == own.eos_token_ids
        assert Holder(home, range(4)).manifest.model_hash == holder.manifest.model_hash


async def test_an_interrupted_fetch_goes_on_where_it_stopped(
    directory: Path, tmp_path: Path
) -> None:
    async with running() as nodes:
        holder = Holder(directory, range(4))
        port = await nodes.add(holder)
        fetcher = Fetcher(nodes.connect, OWN_ID, 8000, tmp_path)
        offer = await fetcher.offer([("127.0.0.1", port)])

        class Interrupted(Exception):
            pass

        def stop(done: int, total: int) -> None:
            if done == 5:
                raise Interrupted

        with pytest.raises(Interrupted):
            await fetcher.layers(offer, range(4), stop)
        before = len(holder.asked)
        await fetcher.layers(offer, range(4))
        total = len(holder.manifest.tensors)
        assert len(holder.asked) - before == total - 5


async def test_a_damaged_file_of_weights_is_fetched_again(directory: Path, tmp_path: Path) -> None:
    async with running() as nodes:
        holder = Holder(directory, range(4))
        port = await nodes.add(holder)
        fetcher = Fetcher(nodes.connect, OWN_ID, 8000, tmp_path)
        offer = await fetcher.offer([("127.0.0.1", port)])
        await fetcher.layers(offer, range(4))
        home = fetcher.home(offer.manifest.model_hash)
        names = ["model.layers.1.mlp.up_proj.weight", "model.norm.weight"]
        changed, cut = (home / f"{name}.safetensors" for name in names)
        good = [changed.read_bytes(), cut.read_bytes()]
        changed.write_bytes(good[0][:-1] + bytes([good[0][-1] ^ 1]))
        cut.write_bytes(good[1][:-1])
        assert missing_tensors(home, offer.manifest, sorted(offer.manifest.tensors)) == names
        holder.asked.clear()
        await fetcher.layers(offer, range(4))
        assert sorted(holder.asked) == names
        assert [changed.read_bytes(), cut.read_bytes()] == good


async def test_without_a_tracker_what_was_fetched_must_be_whole(
    directory: Path, tmp_path: Path
) -> None:
    config = build_config({"data_dir": str(tmp_path), "model": "network", "layers": "0-3"})
    async with running() as nodes:
        port = await nodes.add(Holder(directory, range(4)))
        folder = tmp_path / MODELS_FOLDER
        fetcher = Fetcher(nodes.connect, OWN_ID, 8000, folder)
        offer = await fetcher.offer([("127.0.0.1", port)])
        await fetcher.layers(offer, range(4))
        (folder / CURRENT_FILE).write_text(offer.manifest.model_hash)
        key = key_from_seed("07" * 32)
        source = await find_model(config, key, nodes.connect)
        assert source.manifest.model_hash == offer.manifest.model_hash
        norm = source.directory / "model.norm.weight.safetensors"
        norm.write_bytes(norm.read_bytes()[:-1])
        with pytest.raises(StartupError, match=r"model\.norm\.weight is not there, or damaged"):
            await find_model(config, key, nodes.connect)


async def test_a_full_disk_ends_the_start_in_one_line(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(weights, "write_private", refuse)
    async with running() as nodes:
        port = await nodes.add(Holder(directory, range(4)))
        tracker_url = f"http://127.0.0.1:{port - 1000}"
        config = build_config(
            {"data_dir": str(tmp_path), "model": "network", "tracker_url": tracker_url}
        )
        with pytest.raises(StartupError, match=r"cannot keep the model .*: No space left"):
            await find_model(config, key_from_seed("07" * 32), nodes.connect)


async def test_a_tracker_whose_name_is_lost_for_a_moment_is_asked_again(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve, failures = trio.socket.getaddrinfo, [socket.gaierror(socket.EAI_AGAIN, "later")]

    async def fail_once(*arguments: Any, **options: Any) -> Any:
        if failures:
            raise failures.pop()
        return await resolve(*arguments, **options)

    async with running() as nodes:
        port = await nodes.add(Holder(directory, range(4)))
        await nodes.connect("127.0.0.1", port)
        monkeypatch.setattr(weights, "_pause", lambda attempt: 0.0)
        monkeypatch.setattr(trio.socket, "getaddrinfo", fail_once)
        offer = await Fetcher(nodes.connect, OWN_ID, 8000, tmp_path).offer([("127.0.0.1", port)])
        assert offer.coverage() == [1, 1, 1, 1]
    assert not failures


async def test_a_source_that_lies_is_not_believed(directory: Path, tmp_path: Path) -> None:
    name = "model.layers.2.mlp.up_proj.weight"
    async with running() as nodes:
        liar, honest = Holder(directory, range(4)), Holder(directory, range(1, 3))
        liar.broken = {name}
        honest_port = await nodes.add(honest)
        liar.peers = [told(honest_port, honest)]
        port = await nodes.add(liar)
        fetcher = Fetcher(nodes.connect, OWN_ID, 8000, tmp_path)
        offer = await fetcher.offer([("127.0.0.1", port)])
        await fetcher.layers(offer, range(2, 4))
        home = fetcher.home(offer.manifest.model_hash)
        good = read_tensors((home / f"{name}.safetensors").read_bytes())
        offer.manifest.check(name, good[name])
        assert name in honest.asked


async def test_a_node_named_by_others_is_asked_for_nothing_before_it_proves_its_id(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "GIVE_UP_S", 0.3)
    async with running() as nodes:
        tracker, other = Holder(directory, range(2)), Holder(directory, range(2, 4))
        other_port = await nodes.add(other)
        tracker.peers = [told(other_port, other)]
        other.node_id = b"\x77" * 20
        port = await nodes.add(tracker)
        fetcher = Fetcher(nodes.connect, OWN_ID, 8000, tmp_path)
        offer = await fetcher.offer([("127.0.0.1", port)])
        with pytest.raises(StartupError, match="start again to go on"):
            await fetcher.layers(offer, range(3, 4))
        assert other.asked == []


async def test_another_model_than_the_operator_named_is_refused(
    directory: Path, tmp_path: Path
) -> None:
    async with running() as nodes:
        port = await nodes.add(Holder(directory, range(4)))
        fetcher = Fetcher(nodes.connect, OWN_ID, 8000, tmp_path)
        with pytest.raises(StartupError, match="another model"):
            await fetcher.offer([("127.0.0.1", port)], pinned="ab" * 32)
