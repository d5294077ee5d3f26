"""Engines that vlmtui installs for itself: each an environment of its own in the data folder, found by its record.

`tools/setup_env.py` uses the same steps for a checkout's `.venv`, before any package is installed: what it imports
(`variants`, `hardware`, `environment`, `indexes`, `torch_build`, `packages`) needs the standard library alone.
"""
