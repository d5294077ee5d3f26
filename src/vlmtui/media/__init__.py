"""Images, videos and audio: opening, checking, storing, sampling frames, thumbnails; finding paths in pasted text."""
