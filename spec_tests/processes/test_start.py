"""Starting a node as a user would: set-up, banner, and the ways in which a start can fail."""

import json
import signal
import socket
import stat
import subprocess
from pathlib import Path

import pytest

from spec_tests.ports import free_port
from spec_tests.processes.nodes import run, running_node, wait_until

pytestmark = pytest.mark.process


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_an_empty_machine_gets_a_node_that_answers_the_line_of_its_banner(tmp_path: Path) -> None:
    data = tmp_path / "deep" / "data"
    data.parent.mkdir()
    with running_node(data, token="", fresh=True) as node:
        assert mode(data) == 0o700
        assert mode(data / "key.json") == mode(data / "operator.token") == 0o600
        text = "\n".join(node.banner)
        assert node.token in text  # the token is new, so it is shown
        key = json.loads((data / "key.json").read_text())
        assert key["seed"] not in text + node.log()
        assert node.token not in node.log()

        assert all(len(line) <= 80 or str(data) in line for line in node.banner)
        line = text[text.index("curl") :].replace("\\\n", " ")
        answer = subprocess.run(
            ["bash", "-c", line + " -sS --fail"], capture_output=True, text=True, check=True
        )
        result = json.loads(answer.stdout)
        assert result["text"].strip()
        assert result["usage"]["completion_tokens"] == result["tokens_generated"] > 0

        status = node.ask("GET", "/api/v1/status", token=None).json
        assert status["node_id"] in text
        assert status["status"] == "running"
        assert node.ask("GET", "/api/v1/health", token=None).json["healthy"] is True


def test_a_restart_after_kill_9_keeps_identity_token_and_settings(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running_node(data, token="") as node:
        token, node_id = node.token, node.ask("GET", "/api/v1/config").json["node_id"]
        patch = {"training": {"batch_size": 3}}
        assert node.ask("PATCH", "/api/v1/config", patch).json["updated"] == ["training.batch_size"]
        node.signal(signal.SIGKILL)
        node.wait()
    with running_node(data, token="") as node:
        assert node.token == token
        assert token not in "\n".join(node.banner)  # not shown: standard output is a pipe
        config = node.ask("GET", "/api/v1/config").json
        assert config["node_id"] == node_id
        assert config["training"]["batch_size"] == 3


def test_flags_variables_and_toml_agree(tmp_path: Path) -> None:
    toml = tmp_path / "node.toml"
    toml.write_text("log_format = 'json'\n[resources]\ncpu_threads = 1\n")
    variables = {"MESHNODE_TRAINING_DILOCO_STEPS": "77", "MESHNODE_CONFIG": str(toml)}
    with running_node(tmp_path / "data", "--layers", "0-7", **variables) as node:
        config = node.ask("GET", "/api/v1/config").json
        assert (config["port"], config["grpc_port"]) == (node.port, node.port + 1000)
        assert config["resources"]["cpu_threads"] == 1
        assert config["training"]["diloco_steps"] == 77
        for line in node.log().splitlines():
            assert {"time", "level", "logger", "message"} <= set(json.loads(line))


def test_part_of_the_layers_is_held_and_cannot_answer_alone(tmp_path: Path) -> None:
    with running_node(tmp_path / "data", "--layers", "4-7") as node:
        layers = node.ask("GET", "/api/v1/layers").json
        assert [layer["index"] for layer in layers["layers"]] == [4, 5, 6, 7]
        assert layers["my_layer_count"] == 4
        assert layers["total_layers"] == 8
        answer = node.ask("POST", "/api/v1/inference", {"prompt": "Hello"})
        assert answer.status == 503
        assert answer.json["error"]["code"] == "UNAVAILABLE"
        assert "/api/v1/layers" in "".join(node.banner)
        assert "/api/v1/inference" not in "".join(node.banner)


def test_the_first_layers_are_enough_to_be_asked(tmp_path: Path) -> None:
    with running_node(tmp_path / "data", "--layers", "0-3") as node:
        assert "/api/v1/inference" in "".join(node.banner)


def fails_with(line: str, *arguments: str, fresh: bool = False, **variables: str) -> None:
    result = run(*arguments, fresh=fresh, **variables)
    assert result.returncode == 2, result.stderr
    assert "Traceback" not in result.stderr
    assert line in result.stderr.splitlines()[-1]
    assert result.stdout == ""


@pytest.mark.parametrize("offset", [0, 1000])
def test_a_taken_port_is_one_clear_line_and_nothing_is_made(tmp_path: Path, offset: int) -> None:
    port = free_port()
    line = {
        0: f"port {port} is HTTP's (--port); it is in use on 127.0.0.1",
        1000: f"port {port + 1000} is gRPC's, the HTTP port {port} plus 1000; it is in use",
    }
    with socket.create_server(("127.0.0.1", port + offset)):
        fails_with(
            line[offset], "--port", str(port), "--data-dir", str(tmp_path / "data"), fresh=True
        )
    assert not (tmp_path / "data").exists()


def test_the_line_of_the_banner_works_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with running_node(Path("data"), token="", fresh=True) as node:
        text = "\n".join(node.banner)
        assert f"$(cat {tmp_path}/data/operator.token)" in text


def test_a_bad_configuration_is_one_clear_line(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    fails_with("--port: must be between 1 and 64535", "--port", "64536", "--data-dir", data)
    fails_with("MESHNODE_PORT: must be an integer", "--data-dir", data, MESHNODE_PORT="x")
    fails_with("cannot read the configuration", "--config", str(tmp_path / "missing.toml"))
    file = tmp_path / "file"
    file.write_text("")
    fails_with("cannot use the data folder", "--data-dir", str(file / "data"))


def test_an_unreadable_model_is_one_clear_line(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    data = str(tmp_path / "data")
    fails_with(str(model), "--model", str(model), "--data-dir", data)
    (model / "config.json").write_text("{")
    fails_with("config.json", "--model", str(model), "--data-dir", data)
    fails_with(
        "--layers: the model has layers 0 to 7, not 6-9", "--layers", "6-9", "--data-dir", data
    )


def test_a_damaged_key_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "key.json").write_text('{"format": "meshnode-key-v1", "seed": "12"}')
    (data / "key.json").chmod(0o600)
    fails_with("is damaged", "--data-dir", str(data))
    assert (data / "key.json").read_text() == '{"format": "meshnode-key-v1", "seed": "12"}'


def test_a_second_node_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    with running_node(tmp_path / "data") as node:
        fails_with(
            "another node is using the data folder",
            "--port", str(free_port()), "--data-dir", str(node.data_dir),
        )  # fmt: skip


def test_tokens_are_issued_listed_and_revoked_beside_a_running_node(tmp_path: Path) -> None:
    folder = ["--data-dir", str(tmp_path / "data")]
    with running_node(tmp_path / "data") as node:
        token = run(*folder, "token", "issue", "--name", "alice").stdout.split()[-1]
        listing = run(*folder, "token", "list").stdout
        assert "alice" in listing
        assert token not in listing
        assert token not in (tmp_path / "data" / "tokens.json").read_text()
        assert node.ask("GET", "/api/v1/config", token=token).status == 200
        assert run(*folder, "token", "revoke", "alice").returncode == 0
        assert node.ask("GET", "/api/v1/config", token=token).status == 401
        assert node.ask("GET", "/api/v1/config").status == 200


def test_a_lost_data_folder_is_not_healthy(tmp_path: Path) -> None:
    with running_node(tmp_path / "data") as node:
        (tmp_path / "data").rename(tmp_path / "gone")

        def unhealthy() -> bool:
            answer = node.ask("GET", "/api/v1/health", token=None)
            if answer.status == 200:
                return False
            assert answer.status == 503
            assert answer.json["healthy"] is False
            assert answer.json["checks"]["storage"] != "ok"
            return True

        wait_until(unhealthy)
