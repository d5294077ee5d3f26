"""What a user can do about a failure, as sentences that name actions by id."""

from __future__ import annotations

from vlmtui.errors import Remedy

REMEDIES: dict[Remedy, str] = {
    Remedy.PICK_MODEL: "{models} picks a model.",
    Remedy.RESTART_ENGINE: "{restart_engine} restarts it.",
    Remedy.STOP_ANSWER: "{stop} stops it.",
    Remedy.MAKE_BRANCH: "{regenerate} and {edit} make one.",
    Remedy.EDIT_EARLIER: "{edit} edits an earlier message.",
    Remedy.SHRINK_MESSAGE: "{smaller} smaller images · {fewer_frames} fewer frames · "
    "{leave_out_oldest} leaves the oldest attachments out",
    Remedy.LEAVE_OUT_OLDEST: "{leave_out_oldest} leaves out the oldest.",
    Remedy.SEND_AGAIN: "{take_in_again} undoes it.",
    Remedy.ATTACH_FILE: "{attach} attaches a file.",
    Remedy.ATTACH_INBOX: "{inbox} attaches.",
    Remedy.START_CHAT: "{conversation_list.new} starts a new one; then you can delete this one.",
    Remedy.UNDO_DELETE: "{conversation_list.undo} restores it.",
    Remedy.FILL_RAW_PROMPT: "{comparison.fill} fills it.",
    Remedy.APPLY_FIX: "{comparison.fix} fixes it.",
    Remedy.STOP_COMPARISON: "{comparison.leave} stops them.",
    Remedy.SHOW_DIFFERENCE: "{sides.next_view} computes and shows the difference.",
    Remedy.STOP_FAN_OUT: "{answers.leave} stops them.",
    Remedy.SHOW_PLACES: "{where} shows it in full size.",
}
"""`{id}` stands for the way to run that action: its key, or its slash command."""
