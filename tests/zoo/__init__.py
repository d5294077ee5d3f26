"""A zoo of tiny models: for every model family a checkpoint of its true architecture, made on the spot.

A checkpoint is a folder with `config.json`, a tokenizer and the processor's files, but no weights: vLLM loads it with
`load_format="dummy"`. `tests.zoo.kit` says how a recipe is written, `tests.zoo.recipes` holds them, and
`python -m tests.zoo.check FAMILY...` loads them in vLLM and asks each about pictures.
"""
