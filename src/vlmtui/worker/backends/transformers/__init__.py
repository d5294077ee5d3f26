"""Hugging Face Transformers as a backend: a second implementation of most models, and the only one of some."""
