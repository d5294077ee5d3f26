"""A process that reads a model's tokenizer and templates, and runs its templates: within limits, without network."""
