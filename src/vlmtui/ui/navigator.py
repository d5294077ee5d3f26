"""The screens that the chat opens, by the names of `navigation.Navigator`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vlmtui.ui.app import VlmtuiApp


class AppNavigator:
    """The app's methods under the names of `navigation.Navigator`, for parts that do not call the app yet."""

    def __init__(self, app: VlmtuiApp) -> None:
        self.confirm = app.confirm
        self.choose = app.choose
        self.choose_files = app.choose_files
        self.choose_frames = app.choose_frames
        self.show_viewer = app.open_viewer
        self.show_inspector = app.open_inspector
        self.show_lint = app.open_lint
        self.show_places = app.open_places
        self.show_model_view = app.open_model_view
        self.show_occlusion = app.open_occlusion
        self.compare = app.open_comparison
        self.choose_comparison = app.choose_comparison
        self.plan_fan_out = app.plan_fan_out
        self.fan_out = app.open_fan_out
        self.edit_settings = app.edit_settings
        self.restart_engine = app.restart_engine
        self.load_model = app.load_model
        self.interrupt = app.interrupt
        self.run_action = app.run_action_id
