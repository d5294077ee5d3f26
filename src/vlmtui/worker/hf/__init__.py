"""Work on models in Hugging Face's format that several backends share: media, templates, tokens, remote code."""
