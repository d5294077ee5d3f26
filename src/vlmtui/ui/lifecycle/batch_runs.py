"""The batches of this machine, for the app: shown as tables, started, paused, gone on with; their items in the chat."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from vlmtui.errors import ErrorKind, Remedy, VlmtuiError, bad_input
from vlmtui.session.conversation_holder import ConversationHolder
from vlmtui.session.engine_controller import EngineController
from vlmtui.text import one_line
from vlmtui.ui.navigator import AppNavigator
from vlmtui.ui.services import Services
from vlmtui.ui.view import View

if TYPE_CHECKING:
    from vlmtui.session.batch.background import BackgroundBatches
    from vlmtui.session.batch.item_message import MessageOfItem
    from vlmtui.session.batch.records import BatchRecord, BatchState
    from vlmtui.session.batch.result_table import TableLook
    from vlmtui.session.batch.results import StoredResult

_ANSWERS = "answers.jsonl"
"""The results that `/batch` shows without a name where no batch is known: what docs/batch.md calls them."""
_TOLD = 3


class BatchRuns:
    """What the table of a batch, and `/batch`, can do with batches."""

    def __init__(
        self,
        view: View,
        navigator: AppNavigator,
        services: Services,
        engine_controller: EngineController,
        holder: ConversationHolder,
    ) -> None:
        self._view = view
        self._navigator = navigator
        self._services = services
        self._engine_controller = engine_controller
        self._holder = holder

    def show(self, text: str) -> None:
        """Show the results in a file; with a command line of `vlmtui batch`, start it first; without anything, choose
        among the batches of this machine."""
        self._view.start_dialog(partial(self._show, text.strip()))

    def look(self) -> None:
        """Tell which batches run, and which have ended since they were looked at."""
        self._view.start(self._tell, "batches")

    # -- for the table

    def read_state(self, output: Path) -> tuple[BatchRecord, BatchState] | None:
        """Return what is known of the batch that writes a file. Blocking. That it has ended counts as seen then."""
        records = self._batches.records
        if (record := records.find(output)) is None:
            return None
        if records.is_news(record):
            records.note_seen(record)
        return record, records.state(record)

    def pause_or_resume(self, output: Path) -> None:
        """Pause a batch that runs; go on with one that does not."""
        self._view.start(partial(self._pause_or_resume, output), "batches")

    def ask_again(self, output: Path, result: StoredResult) -> None:
        """Ask one item again."""
        self._view.start(partial(self._ask_again, output, result), "batches")

    def open_item(self, output: Path, result: StoredResult) -> None:
        """Put an item into a new conversation."""
        self._view.start_dialog(partial(self._open_item, output, result, None))

    def compare_item(self, output: Path, result: StoredResult, look: TableLook) -> None:
        """Put an item into a new conversation and compare it there; then show the table again as it looked."""
        self._view.start_dialog(partial(self._open_item, output, result, look))

    # -- steps

    @property
    def _batches(self) -> BackgroundBatches:
        from vlmtui.session.batch.background import BackgroundBatches

        return BackgroundBatches(self._services.paths)

    async def _show(self, text: str) -> None:
        try:
            output = await self._output(text)
        except (VlmtuiError, ValueError) as error:
            self._view.tell_error(error if isinstance(error, VlmtuiError) else bad_input(f"/batch: {error}."))
            return
        if output is not None:
            self._navigator.show_batch(output, self)

    async def _output(self, text: str) -> Path | None:
        """Return the file to show; None: nothing was chosen."""
        if not text:
            return await self._chosen()
        words = shlex.split(text)
        if not any(word.startswith(("-o", "--output")) for word in words):
            return Path(text).expanduser()
        return await asyncio.to_thread(self._batches.start, self._command(words), Path.cwd())

    def _command(self, words: Sequence[str]) -> list[str]:
        """Return the command line, with the model of the chat where it names none."""
        model, named = self._engine_controller.model, ("-m", "--model", "--engine", "--on")
        if model is None or "url" in model.spec.engine_args or any(word.startswith(named) for word in words):
            return ["batch", *words]
        spec = model.spec
        is_folder = spec.name != model.family.family and Path(spec.model).is_dir()
        return ["batch", *words, "--model", spec.model if is_folder else spec.name]

    async def _chosen(self) -> Path | None:
        def read_states() -> list[tuple[BatchRecord, BatchState]]:
            records = self._batches.records
            return [(record, records.state(record)) for record in records.all()]

        known = await asyncio.to_thread(read_states)
        if not known:
            return Path(_ANSWERS)
        lines = [
            f"{state.value:<8} {record.progress.done:>9,} items, {record.progress.failed:,} failed  "
            f"{one_line(record.output)}"
            for record, state in known
        ]
        chosen = await self._navigator.choose("Batches of this machine", lines)
        return None if chosen is None else Path(known[chosen][0].output)

    async def _tell(self) -> None:
        def news() -> tuple[list[BatchRecord], list[BatchRecord]]:
            records = self._batches.records
            found = records.all()
            running = [record for record in found if records.is_running(Path(record.output))]
            ended = [record for record in found if records.is_news(record)]
            for record in ended:
                records.note_seen(record)
            return running, ended

        running, ended = await asyncio.to_thread(news)
        for word, found in (("runs", running), ("has ended", ended)):
            for record in found[:_TOLD]:
                done = f"{record.progress.done:,} items done"
                self._view.tell(f"The batch of {one_line(record.name)} {word}: {done}. /batch shows it.", seconds=15)

    async def _pause_or_resume(self, output: Path) -> None:
        from vlmtui.session.batch.records import BatchState

        def act() -> str:
            batches = self._batches
            record = batches.require(output)
            if batches.records.state(record) is BatchState.RUNNING:
                batches.pause(record)
                batches.records.wait(output)
                return f"{one_line(record.name)} is paused; what is answered stays."
            batches.resume(record)
            return f"{one_line(record.name)} goes on."

        await self._tell_of(act)

    async def _ask_again(self, output: Path, result: StoredResult) -> None:
        def act() -> str:
            if result.id is None:
                raise bad_input("The line is no item: correct it in the input, and go on with the batch.")
            batches = self._batches
            batches.resume(batches.require(output), own=("--again", result.id))
            return f"{one_line(result.id)} is asked again."

        await self._tell_of(act)

    async def _tell_of(self, act: Callable[[], str]) -> None:
        """Do what blocks, and tell what came of it."""
        try:
            self._view.tell(await asyncio.to_thread(act))
        except VlmtuiError as error:
            self._view.tell_error(error)

    async def _open_item(self, output: Path, result: StoredResult, look: TableLook | None) -> None:
        """Put an item into a new conversation; with the `look` of the table, compare it and show the table again."""
        try:
            message = await self._message(output, result)
            if message.raw is not None and look is None:
                raise bad_input("The item is a raw prompt, which a conversation can't send; compare it instead.")
            await self._put(message, result)
        except VlmtuiError as error:
            self._view.tell_error(error)
            return
        if look is not None and (screen := self._navigator.chat_screen()) is not None:
            show_again = partial(self._navigator.show_batch, output, self, look)
            screen.comparisons.compare_with(message.raw, show_again)

    async def _message(self, output: Path, result: StoredResult) -> MessageOfItem:
        """Return an item as a message. Raises VlmtuiError."""
        from vlmtui.session.batch.item_message import message_of

        model, find_item = self._engine_controller.model, self._services.find_item
        if model is None or self._navigator.chat_screen() is None:
            raise VlmtuiError(ErrorKind.BAD_USAGE, "Load a model first.", remedy=Remedy.PICK_MODEL)
        assert find_item is not None, "the app has it"
        self._holder.require_chat().require_rest()
        record = await asyncio.to_thread(self._batches.require, output)
        found = await asyncio.to_thread(find_item, record, result)
        return await message_of(found, self._services.paths, model.spec.num_frames)

    async def _put(self, message: MessageOfItem, result: StoredResult) -> None:
        """Begin a conversation with a message as its draft. Raises VlmtuiError while an answer is running."""
        chat, screen = self._holder.require_chat(), self._navigator.chat_screen()
        chat.require_rest()
        if screen is None:
            return
        chat.clear()
        system = chat.settings.system_prompt if message.system is None else message.system
        sampling = result.sampling or chat.settings.sampling
        chat.settings = msgspec.structs.replace(chat.settings, system_prompt=system, sampling=sampling)
        self._navigator.go_back_to(screen)
        await screen.show_conversation(is_open=True)
        if chat.draft.words.strip():
            screen.panel.take_text(chat.draft.words)
        chat.draft.put_turn(message.turn, above=0)  # nothing may come between this and the next lines
        chat.draft_changed()
        screen.show_draft()
        name = f"line {result.line:,}" if result.id is None else one_line(result.id)
        self._view.tell(f"{name} of the batch, with its settings. Nothing is sent yet.")
