"""Stopping a node: drains, deadlines, second signals, and services that die (decisions/0006)."""

import socket
import signal
import time
from pathlib import Path

import pytest

from spec_tests.support_process import Node, events_of, running_node, wait_until

pytestmark = pytest.mark.process

SLOW_STEPS = """
import time
import meshnode.services.executor as executor_module
{patch}
"""

LONG = {"prompt": "Once upon a time", "max_tokens": 400, "temperature": 0, "seed": 1}
