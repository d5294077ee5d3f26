"""The key scheme: rules that hold for the action table of all screens."""

from __future__ import annotations

from collections import defaultdict

from vlmtui.ui.actions import ACTIONS, SCOPES, SUBMENUS, Action
from vlmtui.ui.chat.suggestions import matching_actions
from vlmtui.ui.keys import default_keys, is_safe

ALIKE = [
    set(names.split())
    for names in (
        "abort back cancel close leave leave_edit no stop take_back",
        "ask measure regenerate render_again retry run_again send",
        "new new_chat new_plan",
        "edit rename",
        "copy copy_answer",
        "take_in_again undo",
        "inspect side",
        "filter find search",
        "mark_all select_all",
        "apply save",
        "base difference",
        "complete next next_part next_unlikely sample search_next",
        "previous previous_part previous_unlikely search_previous",
        "finer zoom_in",
        "coarser zoom_out",
        "first home line_start oldest",
        "end follow jump_end last line_end",
        "page_up up",
        "page_down down",
        "patch_up up",
        "patch_down down",
        "patch_left left previous",
        "patch_right right next",
    )
]
"""Names of actions that mean the same on different screens, and may share a key."""
FREE = {"enter", "space", "left", "right", "up", "down", *"123456"}
"""Keys with a fixed kind of meaning: Enter runs the main action, Space chooses or unfolds, arrows move, digits choose a
view."""


def scopes_of(action: Action) -> list[str]:
    return [scope.name for scope in SCOPES.values() if action in scope.actions]


def meanings() -> dict[str, dict[str, list[str]]]:
    """Return the actions by key (`ctrl+x c` behind the leader), then by name."""
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for action in ACTIONS.values():
        for key in default_keys(action.id):
            found[key][action.name].append(action.id)
        if action.leader:
            found[f"ctrl+x {action.leader}"][action.name].append(action.id)
    return found


def test_no_key_has_two_meanings_in_the_whole_app() -> None:
    table = meanings()
    assert len(table) > 100
    shared = {key: dict(by) for key, by in table.items() if len(by) > 1 and key not in FREE}
    assert {key: by for key, by in shared.items() if not any(by.keys() <= alike for alike in ALIKE)} == {}


def test_the_first_level_after_the_leader_is_small_and_keeps_its_letters() -> None:
    actions = (action for name in ("chat", "editor", "app") for action in SCOPES[name].actions if action.leader)
    first = {action.leader.split()[0] for action in actions}
    assert len(first) <= 19 and first >= set(SUBMENUS)
    paths = [action.leader.split() for action in ACTIONS.values() if action.leader]
    assert all((path[0] in SUBMENUS) == (len(path) == 2) for path in paths), "a key opens a submenu on every screen"


def test_an_action_has_at_most_two_keys() -> None:
    many = [action.id for action in ACTIONS.values() if len(default_keys(action.id)) + bool(action.leader) > 2]
    assert many == []


def test_the_first_commands_of_the_menu_are_those_that_people_need() -> None:
    first = [action.slash for action in matching_actions("/")][:8]
    assert first == ["/attach", "/compare", "/inspect", "/fan", "/retry", "/edit", "/find", "/export"]


def test_nothing_is_reached_by_a_function_key_or_alt_alone() -> None:
    """Terminals, desktops and Macs may take them, so Ctrl, a letter, the leader or a slash command does it too."""
    lonely = [
        action.id
        for action in ACTIONS.values()
        if default_keys(action.id) and not any(map(is_safe, default_keys(action.id)))
        # A command is typed in the chat alone.
        if not action.leader and not (action.slash and scopes_of(action) == ["chat"])
    ]
    assert lonely == []


def test_destructive_actions_have_no_key_or_an_undo() -> None:
    by_name = ("smaller", "fewer_frames", "leave_out_oldest", "drop_attachment", "cleanup")
    assert [id for id in by_name if default_keys(id) or ACTIONS[id].leader or not ACTIONS[id].slash] == []
    deletes = [id for id in ACTIONS if "delete" in default_keys(id)]
    assert deletes == ["conversation_list.delete"] and "conversation_list.undo" in ACTIONS


def test_every_action_can_be_reached_and_is_in_the_help() -> None:
    unreachable = [action.id for action in ACTIONS.values() if not (action.keys or action.leader or action.slash)]
    assert unreachable == []


def test_a_leader_key_runs_one_action_of_a_screen() -> None:
    app = {action.leader: action.id for action in SCOPES["app"].actions if action.leader}
    for scope in SCOPES.values():
        family = [one for one in SCOPES.values() if one.name == scope.name or one.within == scope.name]
        found: dict[str, set[str]] = defaultdict(set)
        for action in (action for one in family for action in one.actions if action.leader):
            found[action.leader].add(action.id)
        for key, id in app.items() if scope.name != "app" else ():
            found[key].add(id)
        assert {key: ids for key, ids in found.items() if len(ids) > 1} == {}, scope.name
