"""A process that reads a model's tokenizer and renders its chat templates, with limits and without network."""
