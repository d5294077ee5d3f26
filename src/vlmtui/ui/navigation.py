"""The protocol by which a feature opens screens of other features."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from vlmtui.domain.attachment import Attachment, VideoSampling
from vlmtui.domain.generation import GenerateRequest
from vlmtui.domain.sampling import Sampling
from vlmtui.media.folder import FolderView
from vlmtui.registry.match import Model
from vlmtui.session.answer_places import AnswerPlaces
from vlmtui.session.comparison import CompareController, ComparedMessage, FindEngines
from vlmtui.session.cost import EstimateTokens
from vlmtui.session.fan_out import FanOut, Plan
from vlmtui.session.lanes import InFlightRequest
from vlmtui.session.prompt_report import PromptReport
from vlmtui.session.recent_folders import RecentFolders
from vlmtui.session.seeing import ModelView, OcclusionPlan
from vlmtui.session.settings import ChatSettings


class FilesChoice(msgspec.Struct, frozen=True):
    """The files chosen in the browser, and the folder that it showed last."""

    paths: tuple[Path, ...]
    folder: Path


class FramesChoice(msgspec.Struct, frozen=True):
    """Which frames of a video to send, and whether to send them as separate images."""

    sampling: VideoSampling
    as_images: bool


class Navigator(Protocol):
    """Shows screens. Methods that return a result are awaited in a dialog's steps (`View.start_dialog`)."""

    async def confirm(self, question: str, *, yes: str, no: str = "No", careful: bool = False) -> bool:
        """Ask a question; False if it was cancelled. `careful`: Enter alone means no."""

    async def choose(self, title: str, lines: Sequence[str]) -> int | None:
        """Choose one of several lines; None if cancelled."""

    # -- attachments

    async def choose_files(
        self, folder: Path, *, recent: RecentFolders, look: FolderView, estimate: EstimateTokens | None
    ) -> FilesChoice:
        """Choose files in the browser, starting in `folder`. `look` is updated with the user's changes; `estimate`
        returns the tokens of an attachment."""

    async def choose_frames(self, video: Attachment, *, takes_video: bool, most_images: int) -> FramesChoice | None:
        """Choose the frames of a video; None if cancelled. `takes_video`: whether the model accepts videos;
        `most_images`: its limit of images in one message."""

    def show_viewer(
        self, attachments: Sequence[Attachment], at: int = 0, *, numbers: Sequence[int] | None = None
    ) -> None:
        """Show attachments in full size, starting with index `at`. `numbers`: the numbers to show for them."""

    # -- prompts and answers

    def show_inspector(self, report: PromptReport, *, again: Callable[[], GenerateRequest] | None = None) -> None:
        """Inspect a prompt and its answer. `again` returns the request that would reproduce it now."""

    def show_lint(self, model: Model) -> None:
        """Check the model's chat template and tokenizer, and show what is wrong with them."""

    def show_places(self, places: AnswerPlaces, numbers: Sequence[int]) -> None:
        """Show where an answer points. `numbers`: of its images or videos in the conversation."""

    def show_model_view(self, views: Sequence[ModelView], numbers: Sequence[int]) -> None:
        """Show what the model sees of attachments. `numbers`: their numbers in the conversation."""

    def show_occlusion(self, plan: OcclusionPlan, number: int) -> None:
        """Show which part of a picture an answer depends on. `number`: the image's number in the conversation."""

    async def compare(
        self,
        controller: CompareController,
        message: ComparedMessage,
        *,
        send: Callable[[CompareController], InFlightRequest],
        on_edit: Callable[[], None],
        look: Callable[[], Awaitable[bool]],
        engines: FindEngines,
    ) -> None:
        """Compare the chat template with a raw prompt, until the user leaves. `send` sends the draft as the
        conversation's next message; `on_edit` is called after changes of the raw text; `look` sends it without its
        pictures, and returns whether the conversation continues with one of those answers; `engines` finds those of
        the sides."""

    async def choose_comparison(self, message: ComparedMessage) -> str | None:
        """Show the stored comparisons of a message; return the raw prompt to run again, or None. Raises VlmtuiError
        if the store cannot be read."""

    async def plan_fan_out(
        self, question: str, sampling: Sampling, *, no_seeds: str, system: str, has_pictures: bool
    ) -> Plan | None:
        """Ask for the plan of a fan-out; None if cancelled. `no_seeds`: why seeds cannot be varied; empty if they
        can. `system`: the system prompt; `has_pictures`: whether pictures can be varied."""

    async def fan_out(self, fan_out: FanOut, changed: str) -> int | Literal["new_plan", "look"] | None:
        """Show a fan-out; return the index of the answer chosen, "new_plan" or "look" for another plan, None if
        left."""

    # -- the rest

    async def edit_settings(self, settings: ChatSettings, model: Model | None) -> ChatSettings | None:
        """Change the conversation's settings; None if cancelled. `model`: the one to ask."""

    def restart_engine(self) -> None:
        """Load the same model again."""

    def load_model(self, model: Model) -> None:
        """Load a model, or the same one with other engine arguments."""

    def interrupt(self) -> None:
        """Ctrl+C with nothing to copy or stop: show how to quit; quit if pressed twice."""

    def run_action(self, id: str, argument: str = "") -> None:
        """Run an action of the table: the active screen's, or else the app's."""
