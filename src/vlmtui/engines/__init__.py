"""Engines that vlmtui installs: each has its own virtual environment in the data folder, and a record.

`builds` and `uv` need only the standard library: `tools/setup_env.py` sets up a checkout's `.venv` with them."""
