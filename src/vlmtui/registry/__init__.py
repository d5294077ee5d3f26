"""Records of the model families: their models, inputs, prompt formats, stop tokens and routes. Data only."""
