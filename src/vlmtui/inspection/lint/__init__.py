"""What is wrong with a model's chat template and tokenizer, found by rendering canned conversations. No engine."""
