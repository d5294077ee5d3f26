"""Model families: a TOML record each, with models, inputs, prompt formats, stop tokens and routes (ways to run it)."""
