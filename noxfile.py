"""The project's sessions. ``nox -l`` lists them; CONTRIBUTING.md says when to run which."""

from __future__ import annotations

from pathlib import Path

import nox

nox.options.default_venv_backend = "venv"
nox.options.sessions = ["lint", "types", "spelling", "codegen", "tests", "wire"]
nox.options.reuse_existing_virtualenvs = True

# purerpc declares h2<4, and Hypercorn from 0.18 on h2>=4.3, so pip cannot resolve the newer line by
# itself: it is laid over the first installation without its dependencies (decision 0001).
PYTHONS = ["3.11", "3.12", "3.13"]
"""Nox skips those whose interpreter is missing here."""
H2_LINES = {
    "4.4": ["-r", "requirements-h2.txt"],
    "3.2": ["h2==3.2.0", "hpack<4", "hyperframe<6", "hypercorn==0.17.3"],
}


def extra(name: str) -> list[str]:
    """The requirements of one extra, for sessions that need no more of the project."""
    project = nox.project.load_toml("pyproject.toml")["project"]
    return list(project["optional-dependencies"][name])


def install(session: nox.Session, extras: str, h2: str = "4.4") -> None:
    """Install the project as the README does."""
    session.install("-e", f".[{extras}]")
    session.install("--no-deps", *H2_LINES[h2])


@nox.session
def lint(session: nox.Session) -> None:
    """Ruff, with the flake8-async rules."""
    session.install(*extra("lint"))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Mypy, strict."""
    install(session, "types,test")
    session.run("mypy")


@nox.session
def spelling(session: nox.Session) -> None:
    """Codespell, and the hosted workflow against its published schema."""
    session.install(*extra("lint"))
    session.run("codespell")
    workflows = sorted(str(path) for path in Path(".github/workflows").glob("*.yml"))
    session.run("check-jsonschema", "--builtin-schema", "vendor.github-workflows", *workflows)


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """All tests but the long ones, on the newer line of h2."""
    install(session, "test")
    session.run("pytest", *(session.posargs or ["-m", "not long"]))


@nox.session(python=PYTHONS)
def wire(session: nox.Session) -> None:
    """The tests of the wire on the older line of h2."""
    install(session, "test", "3.2")
    session.run("pytest", *(session.posargs or ["-m", "wire and not long"]))


@nox.session
def deep(session: nox.Session) -> None:
    """The property tests, with thousands of examples each, and the long ones. Takes two hours."""
    install(session, "test")
    # Hypothesis marks its tests so itself.
    chosen = session.posargs or ["spec_tests", "conformance/tests", "-m", "hypothesis or long"]
    session.run("pytest", *chosen, env={"HYPOTHESIS_PROFILE": "deep"})


@nox.session
def codegen(session: nox.Session) -> None:
    """Fail when the generated code is not what proto/ gives."""
    install(session, "codegen")
    session.run("python", "-m", "tools.codegen", "--check")


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation as a site, and serve it: ``nox -s docs -- --serve PORT``."""
    install(session, "docs")
    session.run("python", "-m", "tools.reference", "--check")
    session.run("python", "-m", "tools.site", *(session.posargs or ["--serve"]))


@nox.session
def conformance(session: nox.Session) -> None:
    """Check any node against the document: ``nox -s conformance -- URL [OPTION...]``."""
    session.install("./conformance")
    session.run("meshnode-conformance", "run", *session.posargs)


@nox.session
def onefile(session: nox.Session) -> None:
    """Write the conformance suite as one file: dist/meshnode-conformance.pyz."""
    session.install("./conformance")
    Path("dist").mkdir(exist_ok=True)
    session.run("python", "-m", "conformance.onefile", "dist/meshnode-conformance.pyz")


@nox.session
def judge(session: nox.Session) -> None:
    """Judge the conformance suite: mutants, variants and hostile behaviour of real nodes."""
    install(session, "test")
    session.run("python", "-m", "conformance.judging", *session.posargs)


@nox.session
def derived(session: nox.Session) -> None:
    """Judge the suite by every single fault of a kind, worn by small nodes; write DERIVED.md."""
    install(session, "test")
    session.run("python", "-m", "conformance.judging.derived", *session.posargs)


@nox.session
def audit(session: nox.Session) -> None:
    """Look up advisories; fail when the source of advisories could not be reached."""
    install(session, "audit")
    session.run("python", "-m", "tools.audit")


@nox.session
def lock(session: nox.Session) -> None:
    """Resolve the dependencies again, and write requirements.lock."""
    session.install(*extra("lock"))
    session.run("python", "-m", "tools.lock")


@nox.session
def sbom(session: nox.Session) -> None:
    """Write dist/meshnode.cdx.json: what an installation by requirements.lock consists of."""
    torch = Path("requirements.lock").read_text().partition("torch==")[2].partition(",")[0]
    session.install("--no-deps", f"torch=={torch}")
    session.install("--no-deps", "--require-hashes", "-r", "requirements.lock")
    own = session.cache_dir / "cyclonedx"
    session.run("python", "-m", "venv", str(own), silent=True)
    session.run(str(own / "bin" / "pip"), "install", "-q", *extra("sbom"), external=True)
    Path("dist").mkdir(exist_ok=True)
    session.run(
        *(str(own / "bin" / "cyclonedx-py"), "environment", "--pyproject", "pyproject.toml"),
        *("--output-reproducible", "--output-file", "dist/meshnode.cdx.json"),
        str(Path(session.virtualenv.location) / "bin" / "python"),
        external=True,
    )


@nox.session
def fuzz(session: nox.Session) -> None:
    """Schemathesis against a running node: it must find nothing."""
    install(session, "test")
    own = session.cache_dir / "schemathesis"
    session.run("python", "-m", "venv", str(own), silent=True)
    session.run(str(own / "bin" / "pip"), "install", "-q", *extra("fuzz"), external=True)
    program = str(own / "bin" / "schemathesis")
    session.run("python", "-m", "tools.fuzz", program, *session.posargs)


@nox.session
def browser(session: nox.Session) -> None:
    """The page in the system's Chromium: what users do, and axe. Takes about two minutes."""
    install(session, "browser")
    session.run("pytest", "-n", "0", "-m", "browser", "spec_tests/browser", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Measure against peers, side by side; prints a table and writes bench/out/figures.json."""
    install(session, "bench")
    session.run("python", "-m", "bench", *session.posargs)


@nox.session
def clients(session: nox.Session) -> None:
    """Clients that are not ours, unmodified: of OpenAI's interface, and of CometBFT's ``/rpc``."""
    install(session, "test,clients")
    folder = session.cache_dir / "npm"
    folder.mkdir(exist_ok=True)
    packages = ("openai", "@cosmjs/tendermint-rpc")
    command = ("npm", "install", "--prefix", str(folder), "--no-fund", "--no-audit", *packages)
    session.run(*command, external=True, silent=True)
    names = ("test_openai_clients.py", "test_comet_clients.py")
    tests = session.posargs or [f"spec_tests/processes/{name}" for name in names]
    variables = {"MESHNODE_TEST_NPM": str(folder)}
    session.run("pytest", "-n", "0", "-m", "slow", "-rs", *tests, env=variables)


@nox.session
def stranger(session: nox.Session) -> None:
    """Judge nodes that were written from the interface alone, each in a language of its own."""
    install(session, "stranger")
    module = ("python", "-m", "conformance.judging.stranger")
    # Written out, since the session's environment has the suite, and this one has not.
    names = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth"]
    names += ["tenth", "eleventh", "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth"]
    names += ["seventeenth", "eighteenth", "nineteenth"]
    for node in names:
        session.run(*module, "--node", node, "--build", *session.posargs)


@nox.session
def siege(session: nox.Session) -> None:
    """Attack a real node beside paying clients; fails when they lose more than they may."""
    install(session, "test")
    session.run("python", "-m", "tools.siege", *session.posargs)


@nox.session
def comet(session: nox.Session) -> None:
    """Four validators under CometBFT: 200 rounds of faults. ``-- ROUNDS SEED`` for others."""
    install(session, "test")
    session.run("python", "-m", "spec_tests.processes.comet.rounds", *session.posargs)
