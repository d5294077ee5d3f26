"""The stages of a load as a checklist."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from textual.content import Content
from textual.widgets import Static

from vlmtui.domain.engine import LoadProgress, LoadStage
from vlmtui.text import one_line

_SPINNER = "◐◓◑◒"
_FRAME_S = 0.25
_TITLE = 22
_BAR = 24


def clock_text(seconds: float) -> str:
    """Format seconds: `0:07`, `12:40`, `1:02:03`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Stages(msgspec.Struct, frozen=True):
    """The progress of a load. Stages may be skipped: those before the newest count as done."""

    progress: LoadProgress | None = None
    began: Mapping[LoadStage, float] = msgspec.field(default_factory=dict)
    """When each stage began, in seconds since the start of the load."""
    failed: bool = False

    def line(self, stage: LoadStage, frame: int = 0) -> Content:
        """Return a stage's line of the checklist."""
        title = stage.label.ljust(_TITLE)
        order = list(LoadStage)
        now = order.index(self.progress.stage) if self.progress else -1
        at = order.index(stage)
        if at < now:
            return Content.assemble(("✓ ", "$text-success"), title, (self._took(stage), "$muted"))
        if at > now or self.progress is None:
            return Content.styled(f"○ {title}", "$faint")
        if self.failed:
            return Content.assemble(("✗ ", "bold $text-error"), (title, "bold"), self._measure(self.progress))
        mark = _SPINNER[frame % len(_SPINNER)]
        return Content.assemble((f"{mark} ", "$text-accent"), (title, "bold"), self._measure(self.progress))

    def _took(self, stage: LoadStage) -> str:
        if stage not in self.began:
            return ""
        later = [began for other, began in self.began.items() if began >= self.began[stage] and other is not stage]
        return f"{min(later) - self.began[stage]:.1f} s" if later else ""

    def _measure(self, progress: LoadProgress) -> Content:
        detail = Content.styled(one_line(progress.detail), "$muted")
        if progress.fraction is None:
            return detail
        fraction = min(max(progress.fraction, 0.0), 1.0)
        filled = round(fraction * _BAR)
        return Content.assemble(
            ("━" * filled, "$text-accent"),
            ("─" * (_BAR - filled), "$faint"),
            f" {fraction:4.0%}  ",
            detail,
        )


class StageList(Static):
    """The checklist of a load, with a spinner at the current stage."""

    DEFAULT_CSS = "StageList { height: auto; text-wrap: nowrap; text-overflow: ellipsis; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self.stages = Stages()
        self._frame = 0

    def on_mount(self) -> None:
        if self.app.animation_level == "full":
            self.set_interval(_FRAME_S, self._turn)
        self._draw()

    def show(self, progress: LoadProgress | None, began: Mapping[LoadStage, float], *, failed: bool = False) -> None:
        """Show the progress; None: the load has just begun."""
        self.stages = Stages(progress, began, failed)
        self._draw()

    def _turn(self) -> None:
        if self.screen.is_current and not self.stages.failed:
            self._frame += 1
            self._draw()

    def _draw(self) -> None:
        self.update(Content("\n").join(self.stages.line(stage, self._frame) for stage in LoadStage))
