"""Hugging Face Transformers as a backend, for models that vLLM lacks and for comparisons with vLLM."""
