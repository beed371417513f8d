"""`action.yml` and `gitlab.yml`: their shell steps, unchanged, against the toy.

A program of the same name replaces pip, so that the tests need no package index.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import conformance
from conformance.judging.hooks import on, put
from conformance.judging.toy.node import TOKEN
from conformance.judging.toy.serving import Serving

HOME = Path(conformance.__file__).parent
ACTION = yaml.safe_load((HOME / "action.yml").read_text(encoding="utf-8"))
GITLAB = yaml.safe_load((HOME / "gitlab.yml").read_text(encoding="utf-8"))
JOB = GITLAB[".meshnode-conformance"]
STEPS = ACTION["runs"]["steps"]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """Return a folder with the suite's program and a pip that installs nothing."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, line in (
        ("meshnode-conformance", f'exec "{sys.executable}" -m conformance "$@"'),
        ("pip", f'echo "$@" > "{folder}/installed"'),
    ):
        path = folder / name
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)
    return folder


def shell(words: list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script as a runner would, in an empty folder."""
    work = folder.parent / "work"
    work.mkdir(exist_ok=True)
    return subprocess.run(
        words,
        cwd=work,
        env={
            "PATH": f"{folder}:/usr/local/bin:/usr/bin:/bin",
            "PYTHONPATH": str(HOME.parent),
            "XDG_CACHE_HOME": str(folder.parent / "cache"),
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def action(folder: Path, **given: str) -> subprocess.CompletedProcess[str]:
    """Run the action's step that judges, with inputs in place of its expressions."""
    inputs = {name: item.get("default", "") for name, item in ACTION["inputs"].items()}
    inputs.update(given)
    step = next(step for step in STEPS if step.get("id") == "run")
    filled = {
        name: re.sub(r"\$\{\{ inputs\.([a-z-]+) \}\}", lambda found: inputs[found[1]], value)
        for name, value in step["env"].items()
    }
    files = {"GITHUB_OUTPUT": "outputs", "GITHUB_STEP_SUMMARY": "summary"}
    return shell(
        # A runner starts bash with these options.
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        folder,
        **filled,
        **{name: str(folder.parent / file) for name, file in files.items()},
    )


def test_the_action_judges_and_keeps_what_it_found(toy: Serving, program: Path) -> None:
    done = action(program, url=toy.url, token=TOKEN, allow="mutate", out="kept")
    assert done.returncode == 0, done.stdout + done.stderr
    home = program.parent
    assert (home / "outputs").read_text() == "exit=0\n"
    summary = (home / "summary").read_text()
    assert summary.startswith("```\n")
    assert summary.rstrip("`\n").endswith("exit 0: conforms")
    built = json.loads((home / "work" / "kept" / "report.json").read_text())
    assert built["conclusion"]["exit"] == 0
    assert "profiles: " in done.stdout
    proved = {i["id"] for i in built["requirements"] if i["standing"] == "proved"}
    # Nothing else was left in the user's folder.
    assert {path.name for path in (home / "work").iterdir()} == {"kept", "conformance.txt"}
    # The token and the permission have arrived.
    assert {"NA-STATUS-001", "NA-AUTH-005", "NA-ROUTE-014"} <= proved


def test_the_action_ends_as_the_suite_does(toy: Serving, program: Path) -> None:
    toy.node.http_hook = on("/api/v1/status", put("peer_count", "many"))
    done = action(program, url=toy.url)
    assert done.returncode == 1
    assert (program.parent / "outputs").read_text() == "exit=1\n"
    assert "MUST VIOLATED  NA-STATUS-014" in (program.parent / "summary").read_text()
    known = program.parent / "known.toml"
    known.write_text('[known]\n"NA-STATUS-014" = "a text so far"\n')
    assert action(program, url=toy.url, baseline=str(known)).returncode == 0


def test_the_action_installs_its_own_folder_and_uploads_whatever_happens() -> None:
    setup, install, run, upload = STEPS
    assert setup["uses"].startswith("actions/setup-python@")
    assert install["env"] == {"HERE": "${{ github.action_path }}"}
    assert install["run"] == 'python -m pip install --quiet "$HERE"'
    assert (HOME / "pyproject.toml").is_file()
    assert upload["if"] == "always()"
    assert upload["with"]["path"] == "${{ inputs.out }}"
    # An expression would make text from outside a part of the script.
    assert all("${{" not in step.get("run", "") for step in STEPS)
    assert ACTION["outputs"]["exit"]["value"] == f"${{{{ steps.{run['id']}.outputs.exit }}}}"
    used = {name for step in STEPS for name in re.findall(r"inputs\.([a-z-]+)", json.dumps(step))}
    assert used == set(ACTION["inputs"])


def gitlab(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the job's script as a runner does: line after line, up to a failure."""
    script = "\n".join(["set -e", *JOB["script"]])
    return shell(["sh", "-c", script], folder, **{**JOB["variables"], **variables})


def test_the_gitlab_job_judges_and_leaves_its_reports(toy: Serving, program: Path) -> None:
    known = program.parent / "known.toml"
    known.write_text('[known]\n"NA-STATUS-014" = "a text so far"\n')
    toy.node.http_hook = on("/api/v1/status", put("peer_count", "many"))
    settings: dict[str, Any] = {"NODE_URL": toy.url, "CONFORMANCE_TOKEN": TOKEN}
    failed = gitlab(program, **settings)
    assert failed.returncode == 1, failed.stdout + failed.stderr
    assert (program / "installed").read_text() == "install --quiet ./conformance\n"
    allowed = {"CONFORMANCE_ALLOW": "mutate", "CONFORMANCE_BASELINE": str(known)}
    done = gitlab(program, **settings, **allowed)
    assert done.returncode == 0, done.stdout + done.stderr
    work = program.parent / "work"
    assert JOB["artifacts"]["when"] == "always"
    for path in (*JOB["artifacts"]["paths"], JOB["artifacts"]["reports"]["junit"]):
        assert (work / path).exists()


def test_the_readme_uses_what_the_snippets_have() -> None:
    readme = (HOME / "README.md").read_text(encoding="utf-8")
    github, other = (
        yaml.safe_load(text.split("```")[0]) for text in readme.split("```yaml\n")[1:3]
    )
    assert set(github[1]["with"]) <= set(ACTION["inputs"])
    assert other["conformance"]["extends"] in GITLAB
    assert set(other["conformance"]["variables"]) <= set(JOB["variables"])
