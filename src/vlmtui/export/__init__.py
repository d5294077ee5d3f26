"""Files for people and other programs: Markdown, web pages and JSON of conversations and comparisons."""
