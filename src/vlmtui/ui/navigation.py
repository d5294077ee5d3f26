"""How a feature opens another one, without knowing it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from vlmtui.domain.attachment import Attachment, VideoSampling
from vlmtui.domain.generation import GenerateRequest
from vlmtui.domain.sampling import Sampling
from vlmtui.media.folder import FolderView
from vlmtui.session.compared_message import ComparedMessage
from vlmtui.session.comparison import CompareController
from vlmtui.session.cost import EstimateTokens
from vlmtui.session.fan_out import FanOut
from vlmtui.session.lane_plan import Plan
from vlmtui.session.lanes import InFlightRequest
from vlmtui.session.prompt_report import PromptReport
from vlmtui.session.recent_folders import RecentFolders
from vlmtui.session.settings import ChatSettings


class FilesChoice(msgspec.Struct, frozen=True):
    """The files that were chosen in the browser, if any, and the folder that it showed last."""

    paths: tuple[Path, ...]
    folder: Path


class FramesChoice(msgspec.Struct, frozen=True):
    """Which frames of a video are sent, and whether each is sent as an image of its own."""

    sampling: VideoSampling
    as_images: bool


class Navigator(Protocol):
    """Shows screens. What waits for a result is awaited in a dialog's steps (`View.start_dialog`)."""

    async def confirm(self, question: str, *, yes: str, no: str = "No", careful: bool = False) -> bool:
        """Ask a question; False where it was left. `careful`: Enter alone says no."""

    # -- attachments

    async def choose_files(
        self, folder: Path, *, recent: RecentFolders, look: FolderView, estimate: EstimateTokens | None
    ) -> FilesChoice:
        """Choose files in the browser, which begins in `folder`. `look` is changed as the user likes it; `estimate`
        tells what an attachment would cost."""

    async def choose_frames(self, video: Attachment, *, takes_video: bool, most_images: int) -> FramesChoice | None:
        """Choose the frames of a video; None where nothing is to change. `takes_video`: whether the model takes
        videos; `most_images`: how many images it takes in one message."""

    def show_viewer(
        self, attachments: Sequence[Attachment], at: int = 0, *, numbers: Sequence[int] | None = None
    ) -> None:
        """Show attachments in full size, the one of index `at` first. `numbers`: what they are called by."""

    # -- prompts and answers

    def show_inspector(self, report: PromptReport, *, again: Callable[[], GenerateRequest] | None = None) -> None:
        """Look into a prompt and its answer. `again` makes the request that it would be made with now."""

    async def compare(
        self,
        controller: CompareController,
        message: ComparedMessage,
        *,
        send: Callable[[CompareController], InFlightRequest],
        on_edit: Callable[[], None],
        look: Callable[[], Awaitable[bool]],
    ) -> None:
        """Compare the chat template with a raw prompt, until that is left. `send` sends the draft as the
        conversation's next message; `on_edit` is called when the raw text has changed; `look` asks it without its
        pictures, and says whether the conversation goes on with one of those answers."""

    async def choose_comparison(self, message: ComparedMessage) -> str | None:
        """Look at the stored comparisons of a message; the raw prompt's text where one is to be run again. Raises
        VlmtuiError where the store cannot be read."""

    async def plan_fan_out(
        self, question: str, sampling: Sampling, *, no_seeds: str, system: str, has_pictures: bool
    ) -> Plan | None:
        """Ask which ways a message is asked; None where it is not. `no_seeds` says why seeds cannot be chosen; empty
        where they can. `system` is the system prompt; `has_pictures`: whether pictures can be changed."""

    async def fan_out(self, fan_out: FanOut) -> int | Literal["new_plan", "look"] | None:
        """Show a fan-out; return the index of the answer chosen, "new_plan" or "look" for another plan, None if
        left."""

    # -- the rest

    async def edit_settings(self, settings: ChatSettings) -> ChatSettings | None:
        """Change the conversation's settings; None where nothing is to change."""

    def restart_engine(self) -> None:
        """Load the same model again."""

    def interrupt(self) -> None:
        """Ctrl+C with nothing to copy or stop: a hint how to quit; twice, the end."""

    def run_action(self, id: str, argument: str = "") -> None:
        """Run an action of the table: the active screen's own, else the app's."""
