"""Hypothesis profiles: ``HYPOTHESIS_PROFILE=deep`` runs thousands of examples."""

import os

from hypothesis import HealthCheck, settings

# Machines are shared and noisy, so how long an example takes is never a failure.
_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("dev", max_examples=60, **_COMMON)
settings.register_profile("ci", max_examples=60, derandomize=True, **_COMMON)
settings.register_profile("deep", max_examples=3000, **_COMMON)
# As the node does it: torch's threads must not spin while others want the processors.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))
