"""Registers the pytest plugin when the suite runs from a checkout without being installed."""

import pytest

from conformance import pytest_plugin


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Register the plugin, unless its entry point has done so."""
    if not pluginmanager.has_plugin(pytest_plugin.NAME):
        pluginmanager.register(pytest_plugin, pytest_plugin.NAME)
