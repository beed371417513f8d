"""The compiled kernels, where this machine can compile them."""

import pytest

from meshnode.model.kernels.build import NoKernels
from meshnode.model.kernels.library import Library


@pytest.fixture(scope="session", params=[1, 3])
def kernels(request: pytest.FixtureRequest) -> Library:
    try:
        return Library(request.param)
    except NoKernels as error:
        pytest.skip(f"no kernels: {error}")
