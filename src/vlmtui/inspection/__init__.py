"""Analyse and compare prompts and answers. No engine, no screen."""
