"""Find faults of a chat template and tokenizer by rendering canned conversations, without an engine."""
