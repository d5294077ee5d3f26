"""What can be done in a chat."""

from __future__ import annotations

from vlmtui.ui.actions.action import Action, FixedKey, Scope

CHAT = Scope(
    "chat",
    "In a chat",
    types=True,
    by_id=True,
    footer_too=("models",),
    actions=(
        Action(
            "attach",
            "Attach",
            "Choose images and videos in a file browser; or give paths, *.png, a folder, or a web address.",
            "ctrl+o",
            slash="/attach",
            argument="PATH",
            footer=True,
        ),
        Action("stop", "Stop", "Stop generating; keep the partial answer.", "escape", slash="/stop", footer=True),
        Action("regenerate", "Answer again", "Ask for another answer to the last message.", "ctrl+r", slash="/retry"),
        Action(
            "edit",
            "Edit message",
            "Edit your last message, or message N; sending creates a branch.",
            "alt+e",
            slash="/edit",
            argument="NUMBER",
        ),
        Action("leave_edit", "Cancel editing", "Cancel editing; the message stays as it is.", "escape", footer=True),
        Action(
            "branch_before",
            "Previous branch",
            "Previous branch (at the last fork).",
            "alt+left",
            priority=True,
        ),
        Action(
            "branch_after",
            "Next branch",
            "Next branch (at the last fork).",
            "alt+right",
            priority=True,
        ),
        Action("branch", "Branch", "Show the branch of that number.", slash="/branch", argument="NUMBER"),
        Action(
            "new_chat", "New chat", "Start a new conversation with the same model.", "ctrl+n", slash="/new", footer=True
        ),
        Action(
            "copy_answer",
            "Copy answer",
            "Copy the last answer to your clipboard.",
            "ctrl+y",
            slash="/copy",
            priority=True,
        ),
        Action(
            "drop_attachment",
            "Remove attachment",
            "Remove an attachment, or the last; so does Backspace behind its token.",
            slash="/detach",
            argument="NUMBER",
        ),
        Action("move_left", "Attachment left", "Move the attachment beside the cursor one word left.", "alt+h"),
        Action("move_right", "Attachment right", "Move the attachment beside the cursor one word right.", "alt+l"),
        Action("paste_picture", "Paste a picture", "Attach the clipboard's picture.", "alt+v", slash="/paste"),
        Action(
            "inbox",
            "Inbox",
            "Attach what came into the inbox folder; tells how to copy there.",
            "alt+i",
            slash="/inbox",
        ),
        Action(
            "view",
            "View",
            "Show an attachment in full size; its frames, zoom, facts.",
            "f9",
            slash="/view",
            argument="NUMBER",
        ),
        Action("frames", "Frames", "Choose which frames of a video are sent.", slash="/frames", argument="NUMBER"),
        Action(
            "page", "Page", "Attach another page of a TIFF, or frame of an animation.", slash="/page", argument="PAGE"
        ),
        Action("still", "Still picture", "Attach an animation as a still picture.", slash="/still", argument="NUMBER"),
        Action(
            "smaller",
            "Smaller images",
            "Halve the sides of the message's images, or of one.",
            "f6",
            slash="/smaller",
            argument="NUMBER",
            priority=True,
        ),
        Action(
            "fewer_frames",
            "Fewer frames",
            "Halve the frames of the message's videos, or of one.",
            "f7",
            slash="/fewer",
            argument="NUMBER",
            priority=True,
        ),
        Action(
            "leave_out_oldest",
            "Leave out attachments",
            "Leave the oldest attachments out of prompts from now on.",
            slash="/forget",
        ),
        Action(
            "take_in_again",
            "Send attachments again",
            "Send the attachments that were left out last again.",
            "f8",
            slash="/remember",
        ),
        Action(
            "toggle_thinking",
            "Thinking",
            "Show or hide the latest reasoning.",
            "ctrl+t",
            slash="/thinking",
            priority=True,
        ),
        Action("jump_end", "Jump to the end", "Go to the newest text and follow it.", "ctrl+end", priority=True),
        Action(
            "inspect",
            "Inspect",
            "Look into a prompt: its tokens, images, template, sampling, and the answer's probabilities.",
            "f12,alt+x",
            slash="/inspect",
            argument="NUMBER",
        ),
        Action(
            "fan_out",
            "Fan out",
            "Ask one message several ways at once: seeds, temperatures, or other wordings.",
            "alt+s",
            slash="/fan",
            argument="seed=1,2,3",
            priority=True,
        ),
        Action("restart_engine", "Restart engine", "Load the model again.", "f5", slash="/restart"),
        Action(
            "compare",
            "Compare",
            "The chat template against a raw prompt, side by side.",
            "f10,alt+c",
            slash="/compare",
            priority=True,
        ),
        Action("comparisons", "Comparisons", "Look at the last message's comparisons.", slash="/comparisons"),
        Action("settings", "Settings", "System prompt and sampling.", "f2", slash="/settings", footer=True),
        Action(
            "system", "System prompt", "Set the system prompt; alone it removes it.", slash="/system", argument="TEXT"
        ),
        Action(
            "set",
            "Set a parameter",
            "Set a sampling parameter, as in `temperature 0.7`.",
            slash="/set",
            argument="NAME VALUE",
        ),
    ),
)

COMPOSER = Scope(
    "composer",
    "Writing a message",
    within="chat",
    fixed=(
        FixedKey("enter", "Send the message."),
        FixedKey("^j", "Break the line; so does Shift+Enter where the terminal tells it apart."),
        FixedKey("↑ ↓", "Earlier and later messages, from the first and the last line."),
        FixedKey("pgup pgdn", "Scroll the conversation."),
        FixedKey("tab", "Take what the menu of commands or paths offers; attach the files that a message names."),
        FixedKey("paste", "A path that is pasted or dropped is attached."),
    ),
)
