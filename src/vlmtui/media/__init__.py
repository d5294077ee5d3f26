"""Images and videos: opening, checking, storing, sampling, thumbnails; and recognising pasted paths."""
