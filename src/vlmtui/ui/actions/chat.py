"""The actions of the chat, the app, text fields, and the screens for attachments."""

from __future__ import annotations

from vlmtui.ui.actions.action import Action, FixedKey, Scope, row_moves

CHAT = Scope(
    "chat",
    "In a chat",
    types=True,
    by_id=True,
    footer_leads=("compare", "inspect", "fan_out", "conversations", "models", "settings"),
    actions=(
        Action(
            "attach",
            "Attach",
            "Choose images and videos in a file browser; or give paths, *.png, a folder, or a web address.",
            "ctrl+o",
            leader="a a",
            usage="/attach PATH",
            footer=True,
        ),
        Action(
            "compare",
            "Compare",
            "Compare the chat template with a raw prompt, or several requests: seed=1..3, engine=here,NAME.",
            "f10",
            leader="c",
            usage="/compare PLAN",
            priority=True,
            needs=("raw_prompts", "raw_media"),
        ),
        Action(
            "inspect",
            "Inspect",
            "Inspect a prompt: tokens, images, template, sampling, and the answer's probabilities.",
            "f12",
            leader="i",
            usage="/inspect NUMBER",
        ),
        Action(
            "fan_out",
            "Fan out",
            "Send one message several ways at once: seed=1..8 temperature=0.7,1.2.",
            "alt+s",
            leader="f",
            usage="/fan seed=1..8",
            priority=True,
        ),
        Action(
            "regenerate",
            "Answer again",
            "Generate another answer to the last message.",
            "ctrl+r",
            leader="r",
            usage="/retry",
        ),
        Action(
            "edit",
            "Edit message",
            "Edit your last message, or message N; sending creates a branch.",
            "alt+e",
            leader="e",
            usage="/edit NUMBER",
        ),
        Action("search", "Find", "Find a text in the conversation.", leader="slash", usage="/find"),
        Action(
            "export",
            "Export",
            "Write the conversation to a file: Markdown, a web page, or JSON with everything.",
            leader="x",
            usage="/export FILE",
        ),
        Action("settings", "Settings", "System prompt and sampling.", "f2", leader="comma", usage="/settings"),
        Action("copy_answer", "Copy", "Copy the last answer to your clipboard.", leader="y", usage="/copy"),
        Action(
            "new_chat", "New chat", "Start a new conversation with the same model.", "ctrl+n", leader="n", usage="/new"
        ),
        Action(
            "stop",
            "Stop",
            "Stop generating, and keep the partial answer; or stop loading a model.",
            "escape",
            usage="/stop",
            footer=True,
        ),
        Action(
            "sample",
            "Sample image",
            "In an empty chat: attach a sample image, and write a question about it.",
            "tab",
            usage="/sample",
            priority=True,
        ),
        Action(
            "select_message",
            "Select a message",
            "Select a message, to edit it, answer it again, compare it and more.",
            leader="t s",
        ),
        Action(
            "recall", "Reuse message", "Reuse an earlier message: it goes into the composer.", "ctrl+up", leader="t e"
        ),
        Action(
            "take_back",
            "Take back",
            "Take the queued messages back into the composer.",
            "escape",
            usage="/unsend",
            footer=True,
        ),
        Action("leave_edit", "Cancel editing", "Cancel editing; the message stays as it is.", "escape", footer=True),
        Action(
            "branch_before",
            "Previous branch",
            "Previous branch (at the last fork).",
            "alt+left",
            leader="b left",
            priority=True,
        ),
        Action(
            "branch_after",
            "Next branch",
            "Next branch (at the last fork).",
            "alt+right",
            leader="b right",
            priority=True,
        ),
        Action("branch", "Branch", "Show the branch with that number.", usage="/branch NUMBER"),
        Action(
            "drop_attachment",
            "Remove attachment",
            "Remove an attachment, or the last; so does Backspace after its token.",
            usage="/detach NUMBER",
        ),
        Action(
            "paste_picture",
            "Paste an image",
            "Attach the image in the clipboard.",
            "alt+v",
            leader="a p",
            usage="/paste",
        ),
        Action(
            "inbox",
            "Inbox",
            "Show the command that copies files from your computer, and open the file browser there.",
            "alt+i",
            leader="a i",
            usage="/inbox",
        ),
        Action(
            "image",
            "Image",
            "Show an image in full size, as a file, as sent, as seen, with heat map or boxes, or blind.",
            "f9",
            leader="p v",
            usage="/image NUMBER",
        ),
        Action("frames", "Frames", "Choose which frames of a video are sent.", usage="/frames NUMBER"),
        Action("page", "Pages", "Take other pages, or frames of an animation: 2, 1-3 or all.", usage="/page PAGES"),
        Action("locate", "Locate", "Write the model's own prompt that asks where WHAT is.", usage="/locate WHAT"),
        Action("sound", "Sound", "Attach a video's audio track, too.", usage="/sound NUMBER"),
        Action(
            "smaller", "Smaller images", "Halve the sides of the message's images, or of one.", usage="/smaller NUMBER"
        ),
        Action(
            "fewer_frames",
            "Fewer frames",
            "Halve the frames of the message's videos, or of one.",
            usage="/fewer NUMBER",
        ),
        Action("leave_out_oldest", "Leave out attachments", "Stop sending the oldest attachments.", usage="/forget"),
        Action(
            "take_in_again",
            "Send attachments again",
            "Send again the attachments that you left out last.",
            leader="a u",
            usage="/remember",
        ),
        Action(
            "toggle_thinking",
            "Reasoning",
            "Show or hide the latest reasoning.",
            "ctrl+t",
            leader="t r",
            usage="/thinking",
            priority=True,
        ),
        Action("jump_end", "Jump to the end", "Go to the newest text and follow it.", "ctrl+end", priority=True),
        Action(
            "seen",
            "Model's view",
            "Show an image as the model sees it.",
            leader="p m",
            usage="/seen NUMBER",
            needs=("model_view",),
        ),
        Action(
            "heat",
            "Heat map",
            "Show the parts of an image that the answer depends on.",
            leader="p h",
            usage="/heat NUMBER",
            needs=("scores",),
        ),
        Action(
            "boxes",
            "Boxes and points",
            "Draw the boxes and points of the answer on its image.",
            leader="p b",
            usage="/boxes NUMBER",
        ),
        Action(
            "blind",
            "Blind test",
            "Score the answer without its image, or with another: does the model look?",
            leader="p l",
            usage="/blind NUMBER",
            needs=("scores",),
        ),
        Action(
            "comparisons", "Comparisons", "Show the last message's comparisons.", leader="b c", usage="/comparisons"
        ),
        Action(
            "earlier_model",
            "Earlier model",
            "Load the model that answered last in this conversation.",
            usage="/earlier",
        ),
        Action(
            "adapter",
            "LoRA adapter",
            "Answer with the LoRA adapter in a folder; `none`: without one.",
            usage="/adapter FOLDER",
            needs=("lora",),
        ),
        Action("system", "System prompt", "Set the system prompt; without text, remove it.", usage="/system TEXT"),
        Action("set", "Set a parameter", "Set a sampling parameter, as in `temperature 0.7`.", usage="/set NAME VALUE"),
    ),
)


COMPOSER = Scope(
    "composer",
    "Writing a message",
    within="chat",
    fixed=(
        FixedKey("enter", "Send the message."),
        FixedKey("^j", "Break the line; so does Shift+Enter if the terminal reports it."),
        FixedKey("↑", "In an empty composer: select a message above. Letters then act on it."),
        FixedKey("↑ ↓", "Earlier and later messages, from the first and the last line."),
        FixedKey("pgup pgdn", "Scroll the conversation."),
        FixedKey("tab", "Accept the offered command or path; attach the files that a message names."),
        FixedKey("paste", "Attach a pasted or dropped path."),
    ),
)


def _does(id: str, title: str, help: str, key: str, *, footer: bool = True) -> Action:
    """Return an action for the line that selects a message: it runs the chat's action `id` on the selected message."""
    return Action(id, title, help, key, run=f"screen.run('{id}')", footer=footer)


MESSAGE_CURSOR = Scope(
    "message_cursor",
    "On a selected message",
    within="chat",
    actions=(
        Action("leave", "Back", "Go back to the composer.", "escape", footer=True),
        _does("edit", "Edit", "Edit the message; sending creates a branch.", "e"),
        _does("regenerate", "Answer again", "Generate another answer to the message.", "r"),
        _does("inspect", "Inspect", "Inspect the prompt and the answer.", "i"),
        _does("compare", "Compare", "Compare the message's prompt with a raw prompt.", "c"),
        _does("copy_answer", "Copy", "Copy the message or the answer.", "y"),
        _does("branch_here", "Branch", "Write another next message, on a new branch.", "b"),
        _does("fan_out", "Fan out", "Send the message several ways at once.", "f"),
        _does("image", "Image", "Show the message's image in the image room.", "p"),
        _does("search", "Find", "Find a text in the conversation.", "slash", footer=False),
        Action("search_next", "Next match", "The next match.", "n", run="screen.search_again(False)"),
        Action("search_previous", "Previous match", "The previous match.", "N", run="screen.search_again(True)"),
        Action(
            "open",
            "Open",
            "Show the message's images; show or hide the answer's reasoning, or its long JSON.",
            "space,enter",
            footer=True,
        ),
        Action(
            "next_part",
            "Next part",
            "The next part of the answer: reasoning, text, code, JSON, table.",
            "right_square_bracket",
            run="part(1)",
        ),
        Action(
            "previous_part", "Previous part", "The previous part of the answer.", "left_square_bracket", run="part(-1)"
        ),
        Action("copy_part", "Copy part", "Copy the selected part of the answer.", "Y"),
        _does("branch_before", "Previous branch", "Previous branch at this message.", "left", footer=False),
        _does("branch_after", "Next branch", "Next branch at this message.", "right", footer=False),
        *row_moves("message", {"up": "up,k", "down": "down,j", "first": "home,g", "last": "end,G"}),
    ),
)


def _edit(name: str, title: str, help: str, keys: str, *, leader: str = "") -> Action:
    return Action(name, title, help, keys, leader=leader, run=f"app.edit('{name}')", moves=True)


EDITOR = Scope(
    "editor",
    "Writing text",
    types=True,
    actions=(
        _edit("line_start", "Line start", "To the beginning of the line.", "home,ctrl+a"),
        _edit("line_end", "Line end", "To the end of the line.", "end,ctrl+e"),
        _edit("first", "Text start", "To the beginning of the text.", "ctrl+home"),
        _edit("last", "Text end", "To the end of the text.", "ctrl+end"),
        _edit("kill_line_end", "Cut to line end", "Cut to the end of the line; there, the line break.", "ctrl+k"),
        _edit("kill_line_start", "Cut to line start", "Cut from the line start, or the selection.", "ctrl+u"),
        _edit("kill_word_left", "Cut word", "Cut the word before the cursor, or the selection.", "ctrl+w"),
        _edit("kill_word_right", "Cut next word", "Cut the word after the cursor.", "alt+d,ctrl+delete"),
        _edit("yank", "Paste cut text", "Paste the text cut last, in any text field.", "ctrl+y"),
        _edit("undo", "Undo", "Undo the last edit.", "ctrl+z,ctrl+underscore"),
        _edit("redo", "Redo", "Redo the edit undone last.", "ctrl+shift+z", leader="t z"),
        _edit("select_all", "Select all", "Select the whole text.", "ctrl+shift+a", leader="t a"),
    ),
)


APP = Scope(
    "app",
    "Everywhere",
    actions=(
        Action(
            "leader", "More", "Show the keys that work here after the leader.", "ctrl+x", footer=True, priority=True
        ),
        Action("models", "Models", "Pick another model.", "f3", leader="m", usage="/model"),
        Action(
            "engine",
            "Engine",
            "Use another engine: one of config.toml, an address, or one that is loaded. The present one stays loaded "
            "where that costs no memory.",
            usage="/engine NAME",
        ),
        Action(
            "conversations",
            "Chats",
            "Search, open, rename or delete conversations.",
            "ctrl+l",
            leader="l",
            usage="/conversations",
        ),
        Action("batch", "Batch", "The results of `vlmtui batch` in FILE (answers.jsonl).", usage="/batch FILE"),
        Action(
            "show_log",
            "Metrics and log",
            "What the engine is doing: requests, caches, speed and times; and its own log, live.",
            "f4",
            leader="g l",
            usage="/log",
        ),
        Action("restart_engine", "Restart engine", "Load the model again.", "f5", leader="g r", usage="/restart"),
        Action("cleanup", "Clean up", "Stop your workers that are no longer usable.", usage="/cleanup"),
        Action(
            "help",
            "Help",
            "Every key and command.",
            "f1",
            leader="question_mark",
            usage="/help",
            footer=True,
            priority=True,
        ),
        Action("command_palette", "Commands", "Search every command.", "ctrl+p"),
        Action(
            "quit",
            "Quit",
            "Quit; a loaded model stays for its keep-alive time.",
            "ctrl+q",
            usage="/quit",
            priority=True,
        ),
        Action(
            "interrupt",
            "Copy or stop",
            "Copy, stop the answer, or show how to quit; pressed twice, quit.",
            "ctrl+c",
            run="help_quit",
        ),
    ),
)


BROWSER = Scope(
    "browser",
    "In the file browser",
    types=True,
    actions=(
        Action("choose", "Open", "Open the folder, or attach.", "enter", priority=True),
        Action(
            "mark",
            "Mark",
            "Mark the file, to take several; so does Space.",
            "ctrl+space,ctrl+@",
            priority=True,
        ),
        Action("mark_all", "Mark all", "Mark all files shown, or unmark them.", leader="A"),
        Action("sort", "Sort", "Sort by name, newest first, or largest first.", leader="O"),
        Action("hidden", "Hidden", "Show hidden files and folders, or hide them.", leader="H"),
        Action("complete", "Complete", "Complete the path being typed.", "tab", priority=True),
        Action("leave", "Cancel", "Clear the filter, or cancel.", "escape", priority=True),
        *row_moves("file", {"first": "ctrl+home", "last": "ctrl+end"}, priority=True),
    ),
    fixed=(
        FixedKey("space", "Mark the file, if the filter is empty."),
        FixedKey("home end", "The first and the last file, if the filter is empty."),
        FixedKey("← ⌫", "The parent folder, if the filter is empty."),
        FixedKey("~ /", "Start typing a path."),
    ),
)

FRAME_PICKER = Scope(
    "frame_picker",
    "Choosing the frames of a video",
    types=True,
    actions=(
        Action("save", "Save", "Send these frames.", "enter,ctrl+s", footer=True, priority=True),
        Action("cancel", "Cancel", "Change nothing.", "escape", footer=True, priority=True),
        Action("up", "Scroll up", "Scroll the frames up.", "pageup", run="scroll('up')", moves=True),
        Action("down", "Scroll down", "Scroll the frames down.", "pagedown", run="scroll('down')", moves=True),
    ),
    fixed=(
        FixedKey("tab", "The next field."),
        FixedKey("space", "Choose how frames are sampled."),
    ),
)
