"""What every engine here does with a model in Hugging Face's format: media, templates, tokens, permissions."""
