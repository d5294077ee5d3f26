"""The menu of files that complete the path after an `@`."""

from __future__ import annotations

from textual.content import Content
from textual.widgets.option_list import Option

from vlmtui.text import human_bytes, one_line
from vlmtui.ui.chat.composer_menu import ComposerMenu
from vlmtui.ui.chat.path_completion import PathCompletion

_NAME_MIN, _NAME_MAX = 19, 44


class PathMenu(ComposerMenu):
    """Shown above the composer; never takes the focus."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self._candidates: list[PathCompletion] = []

    def show(self, candidates: list[PathCompletion]) -> None:
        """Show these; hide the menu if there are none."""
        self._candidates = list(candidates)
        names = [Content(one_line(candidate.name)) for candidate in candidates]
        width = min(_NAME_MAX, max((name.cell_length for name in names), default=0))
        width = max(_NAME_MIN, width)
        self.clear_options()
        for name, candidate in zip(names, candidates, strict=True):
            cell = name.truncate(width, ellipsis=True)
            cell = cell.pad_right(width - cell.cell_length)
            size = "" if candidate.is_folder else human_bytes(candidate.size)
            style = "bold $text-accent" if candidate.is_folder else "bold"
            self.add_option(Option(Content.assemble(cell.stylize(style), (f"  {size:>8}", "$muted"))))
        self.highlighted = 0 if candidates else None
        self.display = bool(candidates)

    @property
    def chosen(self) -> PathCompletion | None:
        """The highlighted file or folder."""
        if self.highlighted is None or not self.display:
            return None
        return self._candidates[self.highlighted]
