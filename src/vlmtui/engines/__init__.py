"""Engines that vlmtui installs: each has its own virtual environment in the data folder, and a record.

`tools/setup_env.py` uses the same steps for a checkout's `.venv` before any package is installed: `builds` and `uv`,
which it imports, need only the standard library."""
