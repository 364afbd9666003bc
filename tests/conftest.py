"""Settings of all tests: how long Hypothesis searches, here and in continuous integration."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# A Spark epoch is slower than Hypothesis expects of an example; its deadlines and health checks on speed say nothing here.
_SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large)
settings.register_profile("dev", max_examples=50, deadline=None, suppress_health_check=_SLOW)
settings.register_profile("ci", max_examples=500, deadline=None, suppress_health_check=_SLOW, print_blob=True, derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))
