"""vlmtui: a terminal chat application for vision-language models."""

__version__ = "0.1.0"
