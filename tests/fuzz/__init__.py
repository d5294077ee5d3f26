"""Every reader of outside data is fed with mutated real files; nothing but `VlmtuiError` may come out."""
