"""Interface 2.1, Configuration, and the sources of its values (decision 0003)."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.config import (
    BY_KEY,
    SETTINGS,
    build_config,
    flatten,
    nest,
    validate_value,
    values_of,
)
from meshnode.domain.errors import InvalidRequest, StartupError, Unavailable
from meshnode.services.settings import PatchResult, Settings
from meshnode.sources import PERSISTED, load_config

NODE_ID = "ab" * 20


def test_later_sources_win(tmp_path: Path) -> None:
    toml = tmp_path / "node.toml"
    toml.write_text("port = 8100\nlog_format = 'json'\n[training]\nbatch_size = 3\n")
    data = tmp_path / "data"
    data.mkdir()
    (data / PERSISTED).write_text(json.dumps({"training": {"batch_size": 4, "enabled": True}}))
    environ = {"MESHNODE_DATA_DIR": str(data), "MESHNODE_PORT": "8200", "MESHNODE_TOKEN": "abc"}
    environ["MESHNODE_TRACKER"] = "http://tracker:8000"
    config = load_config({"port": "8300"}, environ, str(toml))
    assert (config.port, config.grpc_port) == (8300, 9300)
    assert config.training.batch_size == 4
    assert config.training.enabled is True
    assert config.log_format == "json"
    assert config.token == "abc"
    assert config.tracker_url == "http://tracker:8000"
    assert load_config({}, environ, str(toml)).port == 8200


@pytest.mark.parametrize(
    ("flags", "environ", "toml", "line"),
    [
        ({"port": "64536"}, {}, None, "--port: must be between 1 and 64535"),
        ({"port": "0"}, {}, None, "--port: must be between 1 and 64535"),
        ({"port": "http"}, {}, None, "--port: must be an integer"),
        ({"tracker_url": "ftp://x"}, {}, None, "--tracker: must be http://HOST:PORT"),
        ({"layers": "4-"}, {}, None, "--layers: must be 'all', 'auto', N or FIRST-LAST"),
        ({"layers": "9-3"}, {}, None, "--layers: must be FIRST-LAST: 9 comes after 3"),
        ({}, {}, "layers = '1-0'", "node.toml: layers: must be FIRST-LAST: 1 comes after 0"),
        ({"log_format": "xml"}, {}, None, "--log-format: must be 'text' or 'json'"),
        ({}, {"MESHNODE_PORT": "x"}, None, "MESHNODE_PORT: must be an integer"),
        ({}, {"MESHNODE_TOKEN": "a b"}, None, "MESHNODE_TOKEN: must be a bearer token"),
        (
            {},
            {"MESHNODE_TRAINING_LEARNING_RATE": "nan"},
            None,
            "MESHNODE_TRAINING_LEARNING_RATE: must be a number",
        ),
        ({}, {}, "port = true", "node.toml: port: must be an integer"),
        ({}, {}, "port =", "node.toml is not TOML"),
        ({}, {}, "ports = 1", "node.toml: ports: is not a setting"),
        ({}, {}, "training = 1", "node.toml: training: is not a setting"),
        ({}, {}, "[training]\nsteps = 1", "node.toml: training.steps: is not a setting"),
    ],
)
def test_a_bad_source_is_one_clear_line(
    tmp_path: Path, flags: dict[str, str], environ: dict[str, str], toml: str | None, line: str
) -> None:
    file = tmp_path / "node.toml"
    if toml is not None:
        file.write_text(toml)
    environ = {"MESHNODE_DATA_DIR": str(tmp_path), **environ}
    with pytest.raises(StartupError) as caught:
        load_config(flags, environ, str(file) if toml is not None else None)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [b"{", b"[]", b"\xff", b'{"port": 1.5}', b'{"port": 8001}', b'{"token": "x"}', b"[" * 100_000],
)
def test_damaged_persisted_settings_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / PERSISTED).write_bytes(content)
    with pytest.raises(StartupError, match="settings"):
        load_config({"data_dir": str(tmp_path)}, {}, None)


def test_a_configuration_that_is_nested_too_deeply_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text("port = " + "[" * 100_000)
    with pytest.raises(StartupError, match="is not TOML: nested too deeply"):
        load_config({}, {}, str(file))


def test_a_relative_data_folder_becomes_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = load_config({"data_dir": "data"}, {}, None)
    assert config.data_dir == str(tmp_path / "data")


def test_every_default_passes_its_own_check() -> None:
    for setting in SETTINGS:
        assert validate_value(setting, setting.default) == setting.default


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=3,
)


@given(st.sampled_from(sorted(BY_KEY)), json_values)
def test_a_value_is_taken_in_its_own_type_or_refused_with_its_key(key: str, value: object) -> None:
    refused = None
    try:
        taken = validate_value(BY_KEY[key], value)
    except InvalidRequest as error:
        refused = error
    if refused:
        assert refused.field == key
    else:
        assert type(taken) is BY_KEY[key].kind
        assert taken == value


def test_flatten_and_nest_are_opposites() -> None:
    values = values_of(build_config({}))
    assert flatten(nest(values)) == values
    assert build_config(values) == build_config({})


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    settings = Settings(build_config({"data_dir": str(tmp_path)}), NODE_ID)
    settings.require_memory(1 << 30)
    return settings


def test_the_document_has_exactly_the_documented_keys(settings: Settings) -> None:
    document = settings.document()
    assert set(document) == {
        "node_id", "port", "grpc_port", "dtype", "device", "tracker_url", "training", "resources",
    }  # fmt: skip
    training: Any
    resources: Any
    training, resources = document["training"], document["resources"]
    assert set(training) == {"enabled", "batch_size", "learning_rate", "diloco_steps"}
    assert set(resources) == {"max_memory_gb", "cpu_threads"}
    assert document["node_id"] == NODE_ID
    assert (document["port"], document["grpc_port"]) == (8000, 9000)


async def test_patch_merges_nested_keys_and_survives_a_restart(settings: Settings) -> None:
    before: Any = settings.document()
    result = await settings.patch({"training": {"batch_size": 16, "learning_rate": 1}})
    assert result == PatchResult(["training.batch_size", "training.learning_rate"], False)
    assert settings.current.training.batch_size == 16
    assert settings.current.training.diloco_steps == before["training"]["diloco_steps"]
    again = load_config({"data_dir": settings.current.data_dir}, {}, None)
    assert again == settings.current


async def test_patch_says_whether_a_restart_is_needed(settings: Settings) -> None:
    assert (await settings.patch({"resources": {"cpu_threads": 1}})).restart_required is True
    assert (await settings.patch({"training": {"enabled": True}})).restart_required is False


async def test_a_configuration_can_be_sent_back_as_it_was_read(settings: Settings) -> None:
    before = settings.document()
    result = await settings.patch(before)
    assert "port" not in result.updated
    assert settings.document() == before


@pytest.fixture
def settings_without_a_folder(settings: Settings) -> Settings:
    Path(settings.current.data_dir).rmdir()
    return settings


async def test_a_failing_disk_changes_nothing(settings_without_a_folder: Settings) -> None:
    settings = settings_without_a_folder
    before = settings.document()
    with pytest.raises(Unavailable, match="could not be saved"):
        await settings.patch({"training": {"batch_size": 3}})
    assert settings.document() == before


@pytest.mark.parametrize(
    ("body", "field", "reason"),
    [
        ({"training": {"diloco_steps": -1}}, "training.diloco_steps", "between 1 and 1000000"),
        ({"training": {"diloco_steps": 1.5}}, "training.diloco_steps", "an integer"),
        ({"training": {"enabled": 1}}, "training.enabled", "a boolean"),
        ({"training": {"learning_rate": None}}, "training.learning_rate", "a number"),
        ({"training": 3}, "training", "not a setting"),
        ({"training": {"steps": 3}}, "training.steps", "not a setting"),
        ({"training.batch_size": 3}, "training.batch_size", "nested objects"),
        ({"training": {"a.b": 3}}, "training.a.b", "nested objects"),
        ({"port": 9000}, "port", "cannot be changed"),
        ({"port": True}, "port", "cannot be changed"),
        ({"grpc_port": 1}, "grpc_port", "cannot be changed"),
        ({"node_id": "x"}, "node_id", "cannot be changed"),
        ({"token": "x"}, "token", "not a setting"),
        ({"limits": {"max_batch": 1}}, "limits.max_batch", "not a setting"),
        ({"training": {"batch_size": 10**400}}, "training.batch_size", "between 1 and 65536"),
        ({"resources": {"max_memory_gb": 10**400}}, "resources.max_memory_gb", "a number"),
        ({"resources": {"max_memory_gb": 0.5}}, "resources.max_memory_gb", "at least 1"),
        ({"resources": {"cpu_threads": 1025}}, "resources.cpu_threads", "between 1 and 1024"),
    ],
)
async def test_a_bad_patch_is_refused_whole(
    settings: Settings, body: dict[str, object], field: str, reason: str
) -> None:
    before = settings.document()
    with pytest.raises(InvalidRequest) as caught:
        await settings.patch({"tracker_url": "http://other:8000", **body})
    assert caught.value.field == field
    assert reason in caught.value.reason
    assert settings.document() == before
    assert not (Path(settings.current.data_dir) / PERSISTED).exists()
