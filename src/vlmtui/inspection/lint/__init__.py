"""Find faults of a chat template and tokenizer by rendering fixed conversations. Needs no engine."""
