"""The compiled kernels, where this machine can compile them."""

import pytest

from meshnode.model.kernels import build, library
from meshnode.model.kernels.build import NoKernels
from meshnode.model.kernels.library import Library


@pytest.fixture(scope="session", params=[1, 3])
def kernels(request: pytest.FixtureRequest) -> Library:
    try:
        return Library(request.param)
    except NoKernels as error:
        pytest.skip(f"no kernels: {error}")


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """The kernels as a processor without wider vectors has them."""
    path = tmp_path_factory.mktemp("plain") / "kernels.so"
    try:
        build._compile([build._compiler(), *build.OPTIONS], path)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(library, "library_path", lambda: path)
            return Library(2)
    except NoKernels as error:
        pytest.skip(f"no kernels: {error}")
