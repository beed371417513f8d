"""The composition root: every service of the node, and who outlives whom, on one screen.

Nesting is shutdown order. The executor is outermost, so that a stream in flight can finish while
the edges close; the edges are innermost and stop first.
"""

from __future__ import annotations

import logging
import random
import time
from functools import partial
from pathlib import Path

import trio

from meshnode import __version__
from meshnode.banner import BannerFacts, print_banner
from meshnode.config import Config
from meshnode.datadir import DataDirLock
from meshnode.domain.metering import TrafficMeter
from meshnode.edges.grpc_service import node_services
from meshnode.edges.http_node import node_app
from meshnode.http.server import serve_http
from meshnode.model.loading import DEFAULT_MODEL, load_model
from meshnode.rpc.server import serve_grpc
from meshnode.services.executor import engine_limits, serve_executor
from meshnode.services.health import Health, serve_storage_probe
from meshnode.services.keystore import load_or_create_key, load_or_create_token
from meshnode.services.settings import Settings
from meshnode.services.tokens import TokenStore
from meshnode.supervise import Drain, Restarts, ServiceBoard, supervise, watch_signals

log = logging.getLogger(__name__)
