"""Actions on attachments: file browser, viewer, frames of a video."""

from __future__ import annotations

from vlmtui.ui.actions.action import Action, FixedKey, Scope

BROWSER = Scope(
    "browser",
    "In the file browser",
    modal=True,
    types=True,
    actions=(
        Action("browser.choose", "Open", "Open the folder, or attach.", "enter", priority=True),
        Action(
            "browser.mark",
            "Mark",
            "Mark the file, to take several; so does Space.",
            "insert,ctrl+space,ctrl+@",
            leader="space",
            priority=True,
        ),
        Action("browser.mark_all", "Mark all", "Mark all files shown, or unmark them.", leader="a", verb="all"),
        Action("browser.sort", "Sort", "Sort by name, newest first, or largest first.", leader="O"),
        Action("browser.media", "Kind", "Show images and videos, only images, or only videos.", leader="k"),
        Action("browser.hidden", "Hidden", "Show hidden files and folders, or hide them.", leader="H"),
        Action(
            "browser.recent",
            "Recent folders",
            "Show folders you attached files from.",
            leader="h",
            verb="earlier",
        ),
        Action("browser.complete", "Complete", "Complete the path being typed.", "tab", verb="next", priority=True),
        Action(
            "browser.leave",
            "Cancel",
            "Clear the filter, leave the recent folders, or cancel.",
            "escape",
            verb="back",
            priority=True,
        ),
        Action("browser.up", "Up", "The file above.", "up", run="move('up')", priority=True, moves=True),
        Action("browser.down", "Down", "The file below.", "down", run="move('down')", priority=True, moves=True),
        Action(
            "browser.page_up", "A page up", "A page up.", "pageup", run="move('page_up')", priority=True, moves=True
        ),
        Action(
            "browser.page_down",
            "A page down",
            "A page down.",
            "pagedown",
            run="move('page_down')",
            priority=True,
            moves=True,
        ),
        Action(
            "browser.first",
            "First",
            "The first file; so does Home without a filter.",
            "ctrl+home",
            run="move('first')",
            priority=True,
            moves=True,
        ),
        Action(
            "browser.last",
            "Last",
            "The last file; so does End without a filter.",
            "ctrl+end",
            run="move('last')",
            priority=True,
            moves=True,
        ),
    ),
    fixed=(
        FixedKey("space", "Mark the file, if the filter is empty."),
        FixedKey("← ⌫", "The parent folder, if the filter is empty."),
        FixedKey("~ /", "Start typing a path."),
    ),
)

VIEWER = Scope(
    "viewer",
    "In the viewer",
    modal=True,
    actions=(
        Action("viewer.close", "Close", "Back to the conversation.", "escape,q", verb="back", footer=True),
        Action("viewer.next", "Next", "The next attachment.", "n,right", run="turn(1)", footer=True),
        Action("viewer.previous", "Previous", "The previous attachment.", "p,left", run="turn(-1)", footer=True),
        Action("viewer.next_frame", "Next frame", "The video's next frame.", "full_stop", run="step(1)", footer=True),
        Action(
            "viewer.previous_frame",
            "Previous frame",
            "The video's previous frame.",
            "comma",
            run="step(-1)",
            footer=True,
        ),
        Action("viewer.zoom_in", "Zoom in", "Zoom in.", "plus,equals_sign", run="zoom(1)", footer=True),
        Action("viewer.zoom_out", "Zoom out", "Zoom out.", "minus", run="zoom(-1)", footer=True),
        Action("viewer.zoom_reset", "Fit", "Show the whole picture.", "0", run="reset", footer=True),
        Action(
            "viewer.pan_left",
            "Move left",
            "Move left in a zoomed picture.",
            "shift+left,h",
            verb="left",
            run="pan(-1, 0)",
            moves=True,
        ),
        Action(
            "viewer.pan_down",
            "Move down",
            "Move down in a zoomed picture.",
            "shift+down,j",
            verb="down",
            run="pan(0, 1)",
            moves=True,
        ),
        Action(
            "viewer.pan_up",
            "Move up",
            "Move up in a zoomed picture.",
            "shift+up,k",
            verb="up",
            run="pan(0, -1)",
            moves=True,
        ),
        Action(
            "viewer.pan_right",
            "Move right",
            "Move right in a zoomed picture.",
            "shift+right,l",
            verb="right",
            run="pan(1, 0)",
            moves=True,
        ),
        Action("viewer.facts", "Facts", "Show or hide the facts.", "i", leader="i", verb="inspect", footer=True),
        Action(
            "viewer.facts_up", "Facts up", "Scroll the facts up.", "up", verb="up", run="scroll_facts(-1)", moves=True
        ),
        Action(
            "viewer.facts_down",
            "Facts down",
            "Scroll the facts down.",
            "down",
            verb="down",
            run="scroll_facts(1)",
            moves=True,
        ),
    ),
)

FRAME_PICKER = Scope(
    "frame_picker",
    "Choosing the frames of a video",
    modal=True,
    types=True,
    actions=(
        Action(
            "frame_picker.save", "Save", "Send these frames.", "enter,ctrl+s", leader="s", footer=True, priority=True
        ),
        Action("frame_picker.cancel", "Cancel", "Change nothing.", "escape", verb="back", footer=True, priority=True),
        Action(
            "frame_picker.up",
            "Scroll up",
            "Scroll the frames up.",
            "pageup",
            verb="page_up",
            run="scroll('up')",
            moves=True,
        ),
        Action(
            "frame_picker.down",
            "Scroll down",
            "Scroll the frames down.",
            "pagedown",
            verb="page_down",
            run="scroll('down')",
            moves=True,
        ),
    ),
    fixed=(
        FixedKey("tab", "The next field."),
        FixedKey("space", "Choose how frames are sampled."),
    ),
)
