"""Images and videos: opened, checked, kept by content hash, sampled, made small; and pasted paths understood."""
