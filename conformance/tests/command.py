"""The command line, for tests: run it against the toy."""

from conformance import cli
from conformance.judging.toy.serving import Serving


def run(toy: Serving, *arguments: str) -> int:
    """Run the suite against the toy, with few generated inputs."""
    return cli.main(["run", toy.url, "--examples", "3", "--timeout", "60", *arguments])
