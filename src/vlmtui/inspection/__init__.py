"""Analyse and compare what a model is given and what it answers. Pure: no files, no engine, no screen."""
