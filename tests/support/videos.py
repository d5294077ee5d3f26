from __future__ import annotations

from pathlib import Path

import av
import numpy as np


def write_video(path: Path, frames: list[np.ndarray], *, fps: int = 4) -> None:
    """Write frames (H, W, 3) uint8, of even size, as an H.264 video."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=fps, options={"crf": "10"})
        stream.height, stream.width = frames[0].shape[:2]
        stream.pix_fmt = "yuv420p"
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())
