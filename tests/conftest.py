"""What all tests share: nobody's Ray cluster, tracking server or results folder has a say in them."""

from __future__ import annotations

import os

for _name in ("RAY_ADDRESS", "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "MLFLOW_RUN_ID"):
    os.environ.pop(_name, None)
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
