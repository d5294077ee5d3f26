"""Exports: conversations and comparisons as Markdown, web pages and JSON."""
