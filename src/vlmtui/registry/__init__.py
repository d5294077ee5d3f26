"""What is known of each model family: which models, what they take, how a prompt is written, how it ends. Data only."""
