"""The Textual app."""

import os

# Textual draws at most 60 times a second, so that a letter typed right after a frame would be shown 17 ms later.
os.environ.setdefault("TEXTUAL_FPS", "120")
