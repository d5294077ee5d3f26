"""What a model is given and what it answers, taken apart and compared. Pure: no files, no engine, no screen."""
