"""The loop of plain mode: reads a line, does what it says, and writes the result. Reading blocks the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from vlmtui.config.trust import TrustStore
from vlmtui.domain.conversation import VideoSampling
from vlmtui.engine.machine import Machine
from vlmtui.errors import ErrorKind, Remedy, VlmtuiError, bad_input
from vlmtui.media.describe import attachment_facts
from vlmtui.media.gather import ASK_ABOVE, gather
from vlmtui.media.notes import warning_of
from vlmtui.media.stage import stage_source
from vlmtui.plain.terminal import LineTerminal, TerminalGone
from vlmtui.registry.match import Model, resolve
from vlmtui.session.answer_line import answer_line
from vlmtui.session.conversation import Conversation
from vlmtui.session.conversation_holder import Severity
from vlmtui.session.dials import UNCHECKED, variables_of, with_setting
from vlmtui.session.draft import token_text
from vlmtui.session.engines import AppEngines, EngineState
from vlmtui.session.exchange import AnswerEnded, AnswerReplaced, ConversationEvent, Exchange
from vlmtui.session.generation import Answer, waiting_line
from vlmtui.session.models import LoadChecks, model_choices
from vlmtui.session.prompt_history import PromptHistory
from vlmtui.session.resume import not_used
from vlmtui.session.settings import ChatSettings
from vlmtui.store.errors import damaged
from vlmtui.text import is_number, one_line
from vlmtui.ui.actions import ACTIONS, parse_slash
from vlmtui.ui.services import ExitReport, Services

_DETAIL_LINES = 12
"""Most lines of an error's technical detail; the log has all of it."""
_MARKS: Mapping[Severity, str] = {"information": "", "warning": "Warning: ", "error": "Error: "}
_SHORTER = "/detach removes an attachment; /new starts a new conversation."
_WAYS: Mapping[Remedy | None, str] = {
    Remedy.LOAD_MODEL: "/model picks a model.",
    Remedy.RESTART_ENGINE: "/model NAME loads it again.",
    Remedy.MAKE_BRANCH: "/retry makes one.",
    Remedy.SHRINK_MESSAGE: _SHORTER,
    Remedy.LEAVE_OUT_OLDEST: _SHORTER,
    Remedy.ATTACH_FILE: "/attach attaches a file.",
}
"""What a user of plain mode can do about a failure."""
ELSEWHERE: Mapping[str, str] = {
    "adapter": "`vlmtui ask --adapter FOLDER …`",
    "batch": "`vlmtui batch IN -o OUT`",
    "cleanup": "`vlmtui ps` and `vlmtui stop`",
    "compare": "`vlmtui ask --mode both …`",
    "conversations": "`vlmtui conversations` and `vlmtui --plain --resume ID`",
    "copy_answer": "/export FILE",
    "engine": "`vlmtui --plain --engine NAME --continue`",
    "fan_out": "`vlmtui ask --fan-out seed=1..3 …`",
    "inspect": "`vlmtui prompt MODEL …` and `vlmtui ask --json …`",
    "blind": "`vlmtui ask --fan-out image=sent,none …`",
    "page": "/attach FILE#page=2",
    "restart_engine": "/model NAME",
    "settings": "/set and /system",
    "show_log": "`vlmtui top` and the files that `vlmtui config paths` names",
    "sound": "/attach FILE#sound",
    "boxes": "`vlmtui ask --boxes FILE.png …`",
}
"""What replaces an action that plain mode lacks: a shell or slash command, by action id."""


class AnswerLines:
    """Writes an answer while it grows, in whole words, as screen readers need it."""

    def __init__(self, terminal: LineTerminal, answer: Answer) -> None:
        self._terminal = terminal
        self._written: dict[str, int] = {}
        """The number of characters written so far, by heading."""
        self.follow(answer)

    def follow(self, answer: Answer) -> None:
        """Write `answer` from now on; text that was written already is not repeated."""
        self.answer = answer
        answer.on_event = self._write_new_text
        self._write_new_text()

    def _write_new_text(self) -> None:
        if waiting := waiting_line(self.answer):
            self._terminal.write_line(waiting)
        parts = self.answer.parts(self.answer.text)
        self._write_part("Reasoning:", parts.thinking, is_over=not parts.is_thinking)
        self._write_part("Answer:", parts.answer, is_over=self.answer.outcome is not None)

    def _write_part(self, heading: str, text: str, *, is_over: bool) -> None:
        """Write the new text up to the last whole word; if `is_over`, all of it."""
        if not text.strip():
            return
        if heading not in self._written and (heading == "Reasoning:" or self._written):
            self._terminal.write_line(heading)
        written = self._written.setdefault(heading, 0)
        end = len(text) if is_over else max(text.rfind(" "), text.rfind("\n")) + 1
        if end > written:
            self._terminal.write(text[written:end])
            self._written[heading] = end


class Repl:
    """Plain mode: runs commands and sends messages until the user quits, the input ends, or the terminal goes away."""

    def __init__(self, services: Services, terminal: LineTerminal) -> None:
        self.commands: Mapping[str, Callable[[str], Awaitable[None]]] = {
            "attach": self._attach,
            "branch": self._show_branch,
            "drop_attachment": self._detach,
            "help": self._help,
            "models": self._pick_model,
            "new_chat": self._new_chat,
            "quit": self._quit,
            "regenerate": self._answer_again,
            "export": self._export,
            "set": self._set,
            "stop": self._stop,
            "system": self._set_system_prompt,
        }
        """The commands by action id. Each raises VlmtuiError."""
        self._services = services
        self._terminal = terminal
        self._controller = AppEngines(
            services.host,
            keep_alive_s=services.keep_alive_s,
            on_change=self._engine_changed,
            hang_s=services.settings.hang_s,
        )
        self._controller.on_death = self._tell_death
        self._controller.on_outdated = lambda error: self.tell(str(error), error.remedy, severity="warning")
        self._holder = services.conversation_holder(self, self._controller)
        self._holder.on_damage = self._tell_damage
        self._interrupted = services.interrupted_answers(self._holder, show=self._show_brought_back, load=self._load)
        self._checks = LoadChecks(TrustStore(services.paths))
        self._is_subscribed = False
        self._is_leaving = False
        self._lines: AnswerLines | None = None
        """The latest answer on the terminal."""
        self._work: asyncio.Future[Any] | None = None
        """The running command."""
        self._loading: asyncio.Task[Any] | None = None
        self._state_changed = asyncio.Event()
        """Set by the next change of the engine's state, and then replaced."""
        self._reported: tuple[object, ...] = ()
        """The engine's state and load stage that the user was told last."""
        self._tasks: set[asyncio.Task[Any]] = set()

    # -- messages and questions to the user

    def tell(
        self, text: str, remedy: Remedy | None = None, *, seconds: float = 0.0, severity: Severity = "information"
    ) -> None:
        """Write a message as a line, with the command that removes its cause (`remedy`). `seconds` is ignored: lines
        stay."""
        self._write_lines(f"{_MARKS[severity]}{text} {_WAYS.get(remedy, '')}".rstrip())

    def tell_error(self, error: VlmtuiError) -> None:
        """Write an error: message, detail, hint, and the command that removes its cause."""
        self._write_lines(f"Error: {one_line(error.message)}")
        self._write_lines(*(f"  {one_line(line)}" for line in error.detail.splitlines()[-_DETAIL_LINES:]))
        self._write_lines(*filter(None, [f"{one_line(error.hint)} {_WAYS.get(error.remedy, '')}".strip()]))

    def _write_lines(self, *texts: str) -> None:
        for text in texts:
            self._terminal.write_line(text)

    def _choose_one(self, options: Sequence[str]) -> int | None:
        """Let the user choose an option by its number; return its index, or None. Raises TerminalGone."""
        self._write_lines(*(f"  {number}  {option}" for number, option in enumerate(options, 1)))
        given = self._terminal.read_answer(f"Number, 1 to {len(options)} (Enter: none): ")
        return int(given) - 1 if is_number(given) and 1 <= int(given) <= len(options) else None

    # -- the session

    async def run(self) -> tuple[int, ExitReport]:
        """Run until the user quits, the input ends, or the terminal goes away. Return the exit code, and the closing
        message for the shell (`ExitReport`)."""
        loop, talking = asyncio.get_running_loop(), asyncio.ensure_future(self._run_session())
        self._terminal.on_interrupt = lambda is_second: loop.call_soon_threadsafe(self._interrupt, is_second)
        self._terminal.on_end = lambda: loop.call_soon_threadsafe(talking.cancel)
        try:
            await asyncio.wait([talking])
            if not talking.cancelled():
                talking.result()
        except TerminalGone as gone:
            if gone.typed.strip():
                self._set_draft(gone.typed)
        finally:
            is_saved, report = await self._leave()
        number = self._terminal.ended_by
        return 128 + number if number else int(not is_saved), report

    async def _run_session(self) -> None:
        """Load the first model, open the conversation to continue, complete interrupted answers; then read lines."""
        services = self._services
        self._start(self._holder.keep_house())
        for warning in services.registry.warnings:
            self.tell(one_line(str(warning)), severity="warning")
        for work in (self._load_first, self._open_first, self._interrupted.bring_back):
            if not self._is_leaving:
                await self._run(work())
        self._holder.tell_notice()
        while not self._is_leaving:
            prompt = ""
            if (chat := self._holder.chat) is not None:
                await chat.recorder.flush()  # reading a line blocks the event loop
                prompt = chat.draft.only_tokens()
            if self._unsent:
                self.tell(f"Draft (Enter on an empty line sends it): {self._unsent}")
            line = self._terminal.read_message(f"{prompt}> ")
            if line is None:
                return
            await self._run_line(line)

    def _interrupt(self, is_second: bool) -> None:
        """After Ctrl+C, stop the running answer, load or command; after a second one in a row, quit."""
        chat, controller = self._holder.chat, self._controller
        if is_second:
            self._is_leaving = True
        elif chat is not None and chat.running is not None:
            self._start(chat.cancel(controller.engine))
            return
        elif controller.state is EngineState.LOADING:
            self._start(controller.abort())
            return
        if self._work is not None:
            self._work.cancel()

    async def _leave(self) -> tuple[bool, ExitReport]:
        """Store everything, and disconnect from the engine. Return whether all is stored, and the closing message for
        the shell (`ExitReport`). A running answer is stopped; if the terminal is gone, the engine continues it."""
        is_gone = bool(self._terminal.ended_by)
        if is_gone:
            self._terminal.detach()
        is_saved = await self._holder.settle(stops=not is_gone)
        model, chat = self._controller.model, self._holder.chat
        stays = await self._controller.leave()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks))
        await self._holder.close()
        name = model.spec.name if model is not None else None
        return is_saved, ExitReport.of(name, stays, chat.id if chat is not None else None)

    async def _run_line(self, line: str) -> None:
        """Run a line: a slash command, or a message. An empty line sends the draft."""
        chat = self._holder.chat
        command = parse_slash((chat.draft.without_tokens(line) if chat is not None else line).strip())
        if command is None:
            if line.strip():
                self._set_draft(line)
            if line.strip() or self._unsent:
                await self._run(self._send())
        elif command.action is None:
            hint = "/help lists them; // sends a text that begins with a slash."
            self.tell_error(bad_input(f"There is no command {one_line(command.argument)}.", hint=hint))
        elif (run := self.commands.get(command.action.id)) is not None:
            await self._run(run(command.argument))
        else:
            other = ELSEWHERE.get(command.action.id)
            self.tell(f"{command.action.title} is in the full screen{f', or {other}' if other else ''}.")

    @property
    def _unsent(self) -> str:
        chat = self._holder.chat
        return (chat.draft.words if chat is not None else self._holder.typed_ahead).strip()

    def _set_draft(self, line: str) -> None:
        """Set the draft to a line. Attachments of the draft whose tokens are not in the line are put before it."""
        if self._holder.chat is None:
            self._holder.typed_ahead = "\n".join(filter(None, (self._holder.typed_ahead, line)))
            return
        draft = self._holder.chat.draft
        draft.text = draft.only_tokens()
        named = {token.number for token in draft.tokens_in(line)}
        rest = "".join(draft.text[token.start : token.end] for token in draft.tokens if token.number not in named)
        draft.text = rest + line
        self._draft_changed()

    async def _run(self, work: Awaitable[object]) -> None:
        """Run a command, and write its error. Ctrl+C may cancel it."""
        self._work = asyncio.ensure_future(work)
        try:
            await self._work
        except VlmtuiError as error:
            self.tell_error(error)
        except asyncio.CancelledError:
            if self._terminal.ended_by:
                raise
            self.tell("Stopped.")
        finally:
            self._work = None

    def _start(self, work: Coroutine[Any, Any, object]) -> asyncio.Task[Any]:
        """Run a task in the background; it is cancelled when plain mode ends."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    @property
    def _chat(self) -> Conversation:
        """The conversation. Raises VlmtuiError before the first model is chosen."""
        if self._holder.chat is None:
            self._controller.require_model()
        return self._conversation()

    def _conversation(self) -> Conversation:
        """Return the conversation, creating it if needed."""
        chat = self._holder.require_chat()
        if not self._is_subscribed:
            self._is_subscribed = True
            chat.subscribers.append(self._conversation_changed)
            self._holder.take_typed()
        return chat

    def _draft_changed(self) -> None:
        """Number the draft's attachments as in the prompt, and store the draft."""
        chat, model = self._conversation(), self._controller.model
        chat.draft.renumber(chat.attachments_sent, 0)
        chat.draft_changed(model.spec.name if model is not None else "")

    def _tell_damage(self) -> None:
        if (damage := self._services.store.damage) is not None:
            self.tell_error(damaged(damage))

    # -- messages and answers

    async def _send(self) -> None:
        await self._answer(lambda chat, model: chat.begin(model, self._controller.info))

    async def _answer_again(self, argument: str) -> None:
        await self._answer(lambda chat, model: chat.answer_again(model, self._controller.info))

    async def _answer(self, begin: Callable[[Conversation, Model], Exchange]) -> None:
        """Begin an exchange and write its answer. Ctrl+C stops it; the partial answer stays."""
        chat = self._chat
        await self._until_ready()
        exchange = begin(chat, self._controller.require_model())
        self._lines = AnswerLines(self._terminal, exchange.answer)
        await chat.answers.answer(self._controller.require_engine(), exchange)
        if exchange.answer.failure is None:
            self._controller.answered()

    async def _stop(self, argument: str) -> None:
        self.tell("No answer is running. Ctrl+C stops an answer while it is written.")

    def _conversation_changed(self, event: ConversationEvent) -> None:
        """Write the end of the answer. If the engine still generates an answer of an earlier session, write its text
        from now on."""
        lines = self._lines
        if lines is None or lines.answer.request_id != event.exchange.answer.request_id:
            return
        match event:
            case AnswerReplaced(exchange) if exchange.is_running:
                self.tell("The answer goes on; Ctrl+C stops it.")
                lines.follow(exchange.answer)
            case AnswerEnded(exchange):
                self._end_answer(exchange)

    def _end_answer(self, exchange: Exchange) -> None:
        answer = exchange.answer
        answer.on_event = None
        self._write_lines(*(f"[{facts}]" for facts in [answer_line(answer, exchange.marks())] if facts))
        if answer.failure is not None:
            self.tell_error(answer.failure.error())

    async def _show_brought_back(self, is_open: bool) -> None:
        """Show a conversation in which an answer of an earlier session was completed. If the conversation is open
        already (`is_open`), show only its last answer, unless that was written already."""
        last = self._conversation().last
        if not is_open:
            self._show()
        elif last is not None and (self._lines is None or self._lines.answer.request_id != last.answer.request_id):
            self._show(newest=1)

    def _show(self, newest: int = 3) -> None:
        """Write the newest messages and answers."""
        everything = self._chat.branch.all
        shown = everything[-newest:]
        if len(everything) > len(shown):
            self.tell(f"{len(everything) - len(shown):,} earlier messages; /export FILE writes all.")
        for number, exchange in enumerate(shown, len(everything) - len(shown) + 1):
            media = [f"  {one_line(item.name)}, {attachment_facts(item)}" for item in exchange.user.attachments]
            self._write_lines(f"{number} You: {exchange.user.text}", *media)
            self._lines = AnswerLines(self._terminal, exchange.answer)
            self._end_answer(exchange)

    async def _show_branch(self, argument: str) -> None:
        if not is_number(argument):
            raise bad_input("/branch takes a number.")
        await self._chat.show_branch(int(argument))
        self._show()

    async def _new_chat(self, argument: str) -> None:
        self._chat.clear()
        self._draft_changed()
        self.tell("A new conversation; the draft stays.")

    async def _open_first(self) -> None:
        resumed = self._services.resumed
        if resumed is None:
            return
        await self._services.store.run(lambda store: store.mark_interrupted())
        await self._conversation().open(resumed.conversation)
        self._show()
        if resumed.record is not None and (text := not_used(resumed.record)):
            self.tell(text)

    async def _export(self, argument: str) -> None:
        from vlmtui.session.conversation import export_conversation

        if not argument:
            raise bad_input("/export takes a file name.", hint="FILE.md or .html to read, .json with everything.")
        await export_conversation(self._chat.recorder.store, await self._chat.stored_id(), argument, self)

    # -- attachments

    async def _attach(self, argument: str) -> None:
        found = await asyncio.to_thread(gather, argument, base=Path.cwd())
        for problem in found.problems:
            self.tell_error(problem)
        sources: list[Path | str] = [*found.paths, *found.urls]
        if len(sources) > ASK_ABOVE:
            raise bad_input(f"Can't attach {len(sources)} files at once; the limit is {ASK_ABOVE}.")
        for source in sources:
            try:
                await self._attach_one(source)
            except VlmtuiError as error:
                self.tell_error(error)

    async def _attach_one(self, source: Path | str) -> None:
        """Open and check a file, and put it at the end of the draft. Raises VlmtuiError."""
        paths, draft, model = self._services.paths, self._chat.draft, self._controller.model
        sampling = VideoSampling(num_frames=model.spec.num_frames) if model is not None else None
        attachment = await stage_source(source, paths.media, paths.cache / "downloads", sampling)
        number = draft.reserve(self._chat.attachments_sent)
        draft.fill(number, attachment)
        token = token_text(number, attachment)
        draft.text += token
        self.tell(f"{token} {one_line(attachment.name)}, {attachment_facts(attachment)}")
        if warning := warning_of(attachment):
            self.tell(one_line(warning))
        self._draft_changed()

    async def _detach(self, argument: str) -> None:
        draft = self._chat.draft
        found = [token for token in draft.tokens if not argument or str(token.number) == argument]
        if not found:
            raise bad_input(f"The message has no attachment {one_line(argument)}".rstrip() + ".")
        token = found[-1]
        self.tell(f"Removed {draft.text[token.start : token.end]}.")
        draft.text = draft.text[: token.start] + draft.text[token.end :]
        self._draft_changed()

    # -- settings

    async def _set_system_prompt(self, argument: str) -> None:
        self._apply(msgspec.structs.replace(self._chat.settings, system_prompt=argument))

    async def _set(self, argument: str) -> None:
        model, settings = self._controller.model, self._chat.settings
        family = model.family if model is not None else None
        info = self._controller.info
        variables = info.template_variables if info is not None else None
        sampling = await asyncio.to_thread(with_setting, settings.sampling, argument, family, variables)
        if variables is None and variables_of(sampling) != variables_of(settings.sampling):
            self.tell(UNCHECKED)
        self._apply(msgspec.structs.replace(settings, sampling=sampling))

    def _apply(self, settings: ChatSettings) -> None:
        told = self._chat.settings.changed_to(settings)
        self._chat.settings = settings
        self.tell(f"{told[0].upper()}{told[1:]}" if told else "No setting has changed.")

    # -- models

    async def _load_first(self) -> None:
        """Load the model of the command line, or that of the conversation to continue."""
        if (model := self._services.first_model()) is not None:
            await self._choose(model)
        else:
            self.tell("No model is loaded. /model lists the models, /model NAME loads one.")

    async def _pick_model(self, argument: str) -> None:
        """Load a model by its name; without a name, list the models."""
        if argument:
            await self._choose(resolve(self._services.registry, argument))
            return
        running, current = await self._services.host.running(), self._controller.model
        spec = current.spec if current is not None else None
        rows = model_choices(self._services.registry, running=running, current=spec)
        listed = [", ".join(filter(None, [one_line(row.model.spec.name), row.state])) for row in rows if not row.closed]
        self._write_lines(*(f"  {one}" for one in listed))
        self.tell("/model NAME loads one of these, a repository id or a folder.")

    async def _choose(self, model: Model) -> None:
        """Load a model and wait until it is ready. If necessary, first ask for permission to run the model's own code,
        and whether to load a model that may not fit into memory."""
        model = self._checks.allowed(model)
        machine = await asyncio.to_thread(Machine.measure)
        is_size_accepted = False
        while (check := self._checks.first(model, machine, size_accepted=is_size_accepted)) is not None:
            self._write_lines(one_line(check.title), *check.text.splitlines())
            chosen = self._choose_one([option.label for option in check.options])
            option = check.options[chosen] if chosen is not None else None
            if option is None or option.model is None:
                return
            if option.trusts_code:
                self._checks.remember(option.model)
            model, is_size_accepted = option.model, True
        self._load(model)
        await self._until_ready()

    def _load(self, model: Model) -> None:
        controller = self._controller
        if not controller.serves(model) or controller.is_to_restart:
            self._loading = self._start(self._load_and_watch(model))
        else:
            self.tell(f"{one_line(model.spec.name)} is loaded already.")

    async def _load_and_watch(self, model: Model) -> None:
        self.tell(f"Loading {one_line(model.spec.name)}. Ctrl+C stops it.")
        if await self._controller.start(model):
            self._start(self._controller.watch())

    async def _until_ready(self) -> None:
        """Wait while a model loads. Raises VlmtuiError if the load failed or was stopped."""
        if self._loading is not None:
            await asyncio.shield(self._loading)
        while self._controller.state is EngineState.LOADING:
            await self._state_changed.wait()
        if self._controller.state is EngineState.NONE and self._controller.model is not None:
            raise VlmtuiError(ErrorKind.BAD_USAGE, "Loading was stopped.", remedy=Remedy.LOAD_MODEL)
        self._controller.require_engine()

    def _engine_changed(self) -> None:
        """Write each new stage of a load, and its end."""
        controller = self._controller
        self._state_changed.set()
        self._state_changed = asyncio.Event()
        self._interrupted.engine_changed()
        is_loading, progress = controller.state is EngineState.LOADING, controller.progress
        stage = progress.stage if is_loading and progress is not None else None
        if self._reported == (told := (controller.state, stage)):
            return
        self._reported = told
        name = one_line(controller.model.spec.name) if controller.model is not None else ""
        info = controller.info
        if stage is not None and progress is not None:
            self.tell(f"  {stage.label} … {progress.elapsed_s:.0f} s")
        elif controller.state is EngineState.READY and info is not None:
            engine = one_line(f"{info.engine} {info.engine_version}".strip())
            context = f"{info.max_model_len:,} tokens of context" if info.max_model_len else "its context is unknown"
            self.tell(f"{name} is ready: {engine}, {context}.")
            self._write_lines(*map(one_line, info.notes))
        elif controller.state is EngineState.HUNG:
            self.tell(f"{name} does not answer.", severity="warning")

    def _tell_death(self, error: VlmtuiError, loads_again: bool) -> None:
        """Write that the engine died, and whether it loads again. A running answer also ends with this error."""
        name = one_line(self._controller.model.spec.name) if self._controller.model is not None else "The engine"
        again = " It is loading again." if loads_again else ""
        remedy = None if loads_again else Remedy.RESTART_ENGINE
        self.tell(f"{name}: {one_line(error.message)}{again}", remedy, severity="warning")

    # -- commands

    async def _quit(self, argument: str) -> None:
        self._is_leaving = True

    async def _help(self, argument: str) -> None:
        actions = sorted((ACTIONS[id] for id in self.commands), key=lambda action: action.slash)
        self._write_lines(*(f"  {action.usage}: {action.help}" for action in actions))
        self.tell("A line is sent as a message; a \\ at its end continues it. Ctrl+C stops an answer.")
        self.tell("[Image #1] in a line places that attachment; otherwise attachments come first.")
        self.tell("The app's other commands say which command does the same without a screen.")


def run_plain(services: Services) -> tuple[int, ExitReport]:
    """Run plain mode. Return the exit code, and the closing message for the shell (`ExitReport`)."""
    terminal = LineTerminal(PromptHistory(services.paths.state / "prompts.jsonl"))
    with terminal.signals():
        return asyncio.run(Repl(services, terminal).run())
