"""Registers the pytest plugin where the suite is run from a checkout without being installed."""

import pytest

from conformance import pytest_plugin


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Register the plugin, unless its entry point has done it."""
    if not pluginmanager.has_plugin(pytest_plugin.NAME):
        pluginmanager.register(pytest_plugin, pytest_plugin.NAME)
