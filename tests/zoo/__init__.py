"""Tiny models of the true architectures: config, tokenizer and processor, but no weights.

`kit` says how a recipe is written and `recipes` holds them; `trial` drives one of them through the worker's own code
with the project's own record; `python -m tests.zoo` (`make zoo`) runs all and prints a table.
"""
