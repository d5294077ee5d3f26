"""The list of stored conversations."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from textual import events
from textual.widgets import Input, Static

from tests.support.documents import written
from tests.support.waiting import until
from tests.ui.conftest import AppPilot, MakeApp, PlainChat, StartChat, picture
from vlmtui.config.settings import Settings
from vlmtui.domain.conversation import Attachment, user_turn
from vlmtui.errors import bad_input
from vlmtui.export.conversation import Place, to_json_document
from vlmtui.files import write_private
from vlmtui.media.stage import stage
from vlmtui.paths import Paths, private_dir
from vlmtui.session import conversation_list
from vlmtui.session.async_store import AsyncStore
from vlmtui.session.comparison import draft_file
from vlmtui.session.conversation_list import ago, undelete_last
from vlmtui.store.backup import back_up_daily
from vlmtui.store.document import add_document, document_of, read_document
from vlmtui.store.errors import StoreError
from vlmtui.store.opening import FILE
from vlmtui.store.records import AnswerData, ConversationId, GenerationRecord, Snippet, StoredDraft
from vlmtui.store.store import Store
from vlmtui.ui.app import VlmtuiApp
from vlmtui.ui.chat.screen import ChatScreen
from vlmtui.ui.conversations import ConversationListView, ConversationsScreen, snippet_content
from vlmtui.ui.document.view import DocumentView
from vlmtui.ui.widgets.dialogs import ChoiceScreen, NameScreen
from vlmtui.ui.widgets.footer_bar import FooterBar

MANY = 250
HOSTILE = "\x1b[2J[/x] \u202egnp"


@dataclass
class Listing:
    """The app, which shows the list."""

    app: VlmtuiApp
    pilot: AppPilot
    store: AsyncStore
    opened: list[ConversationId]
    """The conversations that were to be opened."""

    @property
    def screen(self) -> ConversationsScreen:
        assert isinstance(self.app.screen, ConversationsScreen)
        return self.app.screen

    @property
    def view(self) -> ConversationListView:
        return self.screen.query_one(ConversationListView)

    @property
    def titles(self) -> list[str]:
        return [entry.conversation.title for entry in self.view.rows]

    @property
    def notes(self) -> str:
        return "\n".join(note.message for note in self.app._notifications)

    @property
    def preview(self) -> str:
        return written(self.screen.query_one("#side", DocumentView))

    def text(self) -> str:
        return "\n".join(strip.text.rstrip() for strip in self.screen._compositor.render_strips())

    async def until(self, condition: Callable[[], bool]) -> None:
        await until(self.pilot, condition)

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    def press_at_once(self, *keys: str) -> None:
        """Press several keys at once, as they arrive over a slow connection."""
        for key in keys:
            character = "/" if key == "slash" else key if len(key) == 1 else None
            self.app.post_message(events.Key("space" if key == " " else key, character))

    async def search(self, text: str) -> None:
        await self.press("slash")
        self.screen.query_one("#search", Input).value = text
        await self.until(lambda: self.screen.conversations.query == text)
        await self.pilot.pause()


ShowList = Callable[..., AbstractAsyncContextManager[Listing]]
Fill = Callable[[Store], object]


def talk(
    store: Store, title: str, *said: tuple[str, str], attachments: list[Attachment] | None = None, model: str = "shapes"
) -> ConversationId:
    """Store a conversation of (question, answer) pairs."""
    conversation = store.new_conversation(title=title, model=model)
    for question, text in said:
        leaf = store.conversation(conversation).leaf
        asked = store.add_turn(conversation, leaf, user_turn(question, attachments or []))
        answer = store.begin_answer(asked, GenerationRecord(model=model))
        store.write_answer(answer, text, AnswerData(state="complete"))
    return conversation


def three(store: Store) -> list[ConversationId]:
    return [
        talk(store, "Shapes", ("What is it?", "A red circle."), ("And where?", "At the left.")),
        talk(store, "Cats", ("Who is it?", "Two cats on a sofa.")),
        talk(store, "Receipts", ("Read it", "Total: 12.80")),
    ]


@pytest.fixture
def listing(plain_chat: None, make_app: MakeApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ShowList:
    """`async with listing(fill, size=…) as shown`: the app with the list; `fill` fills the store before."""

    @asynccontextmanager
    async def start(
        fill: Fill = three,
        *,
        size: tuple[int, int] = (80, 24),
        open_title: str | None = None,
    ) -> AsyncIterator[Listing]:
        paths = Paths.below(tmp_path)
        keeper = AsyncStore(paths)
        await keeper.run(fill)
        all_of_them = await keeper.run(lambda store: store.conversations())
        ids = {one.conversation.title: one.conversation.id for one in all_of_them}
        app = make_app(settings=Settings(graphics="off"))
        opened: list[ConversationId] = []
        monkeypatch.setattr(app.stored, "open", lambda id, turn, words: opened.append(id))
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: isinstance(app.screen, PlainChat) and app.key_queue.is_open)
            screen = ConversationsScreen(keeper, open_id=ids[open_title] if open_title else None)
            app.push_screen(screen)
            await until(pilot, lambda: app.screen is screen and bool(screen.query("#count")))
            await until(pilot, lambda: bool(str(screen.query_one("#count", Static).content)))
            await pilot.pause()
            yield Listing(app, pilot, keeper, opened)
        await keeper.close()

    return start


async def test_the_last_changed_stands_first_and_enter_opens_it(listing: ShowList) -> None:
    async with listing() as shown:
        assert shown.titles == ["Receipts", "Cats", "Shapes"]
        text = shown.text()
        assert "shapes · 2 messages" in text
        assert "just now" in text
        wanted = shown.view.rows[1].id
        await shown.press("down", "enter")
        await shown.until(lambda: shown.opened == [wanted])


async def test_an_empty_list_has_a_hint(listing: ShowList) -> None:
    async with listing(lambda store: None) as shown:
        assert "No conversations yet" in shown.text()
        await shown.press("enter", "delete", "asterisk", "e", "u")
        assert isinstance(shown.app.screen, ConversationsScreen)
        await shown.press("escape")
        await shown.until(lambda: isinstance(shown.app.screen, PlainChat))


async def test_typing_searches_all_messages_and_marks_matches(listing: ShowList) -> None:
    async with listing() as shown:
        await shown.press("slash", *"circ")
        await shown.until(lambda: shown.titles == ["Shapes"])
        snippet = shown.view.rows[0].snippet
        assert snippet is not None
        line = snippet_content(snippet)
        assert [line.plain[span.start : span.end] for span in line.spans if "warning" in str(span.style)] == ["circle"]
        assert "A red circle." in shown.text()
        await shown.until(lambda: "1 found" in shown.text())
        wanted = shown.view.rows[0].id
        await shown.press("escape")
        await shown.until(lambda: len(shown.titles) == 3)
        assert shown.view.has_focus
        await shown.search("circle")
        await shown.press("enter")
        await shown.until(lambda: shown.opened == [wanted])


async def test_titles_are_searched_and_no_match_is_reported(listing: ShowList) -> None:
    async with listing() as shown:
        await shown.search("rece")
        assert shown.titles == ["Receipts"]
        await shown.press("slash")
        shown.screen.query_one("#search", Input).value = '[/x] "OR \x1b'
        await shown.until(lambda: shown.titles == [])
        await shown.until(lambda: "No message matches “" in shown.text())
        assert "\x1b" not in shown.text()


async def test_a_title_is_changed(listing: ShowList) -> None:
    async with listing() as shown:
        await shown.press("down", "e")
        await shown.until(lambda: isinstance(shown.app.screen, NameScreen))
        title = shown.app.screen.query_one(Input)
        assert title.value == "Cats"
        title.value = "  Two   cats "
        await shown.press("enter")
        await shown.until(lambda: isinstance(shown.app.screen, ConversationsScreen) and "Two cats" in shown.titles)
        current = shown.view.current
        assert current is not None
        assert current.conversation.title == "Two cats"
        assert shown.view.has_focus
        stored = await shown.store.run(lambda store: store.conversation(current.id))
        assert stored.title == "Two cats"


async def test_escape_and_an_empty_title_leave_the_old_one(listing: ShowList) -> None:
    async with listing() as shown:
        for value, key in (("Other", "escape"), ("   ", "enter")):
            await shown.press("e")
            await shown.until(lambda: isinstance(shown.app.screen, NameScreen))
            shown.app.screen.query_one(Input).value = value
            await shown.press(key)
            await shown.until(lambda: isinstance(shown.app.screen, ConversationsScreen) and shown.view.has_focus)
        assert shown.titles == ["Receipts", "Cats", "Shapes"]


async def test_pinned_conversations_come_first(listing: ShowList) -> None:
    async with listing() as shown:
        await shown.press("end", "asterisk")
        await shown.until(lambda: shown.titles == ["Shapes", "Receipts", "Cats"])
        assert "★ Shapes" in shown.text()
        assert shown.view.highlighted == 0
        await shown.press("asterisk")
        await shown.until(lambda: shown.titles == ["Receipts", "Cats", "Shapes"])
        assert "★" not in shown.text()


async def test_a_deleted_conversation_comes_back(listing: ShowList) -> None:
    async with listing() as shown:
        await shown.press("u")
        await shown.press("down", "delete")
        await shown.until(lambda: shown.titles == ["Receipts", "Shapes"])
        await shown.until(lambda: "Deleted “Cats”" in shown.notes)
        current = shown.view.current
        assert current is not None
        assert current.conversation.title == "Shapes", "the one that took its place"
        await shown.press("delete")
        await shown.until(lambda: shown.titles == ["Receipts"])
        await shown.press("u")
        await shown.until(lambda: shown.titles == ["Receipts", "Shapes"])
        await shown.press("u")
        await shown.until(lambda: shown.titles == ["Receipts", "Cats", "Shapes"])
        assert await shown.store.run(lambda store: store.deleted()) == []
        await shown.press("u")
        assert shown.titles == ["Receipts", "Cats", "Shapes"]


async def test_the_open_conversation_is_marked_and_not_deleted(listing: ShowList) -> None:
    async with listing(open_title="Cats") as shown:
        await shown.press("down", "delete")
        await shown.until(lambda: "This conversation is open" in shown.notes)
        assert shown.titles == ["Receipts", "Cats", "Shapes"]


async def test_deleted_conversations_are_restored_the_last_one_first(tmp_path: Path) -> None:
    keeper = AsyncStore(Paths.below(tmp_path))
    ids = await keeper.run(three)
    for one in ids[:2]:
        await keeper.run(lambda store, one=one: store.delete(one))  # type: ignore[misc]
    assert (await undelete_last(keeper)).title == "Cats"
    assert (await undelete_last(keeper)).title == "Shapes"
    with pytest.raises(Exception, match="No conversation was deleted"):
        await undelete_last(keeper)
    await keeper.close()


@pytest.mark.parametrize(("keep_deleted", "is_kept"), [("30d", True), ("forever", True), ("0", False)])
async def test_the_app_purges_conversations_after_keep_deleted(
    keep_deleted: str, is_kept: bool, make_app: MakeApp, tmp_path: Path
) -> None:
    paths = Paths.below(tmp_path)
    keeper = AsyncStore(paths)
    (gone, _, other) = await keeper.run(three)
    await keeper.run(lambda store: store.delete(gone))
    for one in (gone, other):
        write_private(draft_file(paths, one), b"{}")
    await keeper.close()
    left = private_dir(paths.media / "ab") / ".new-vlmtui-0123456789abcdef"
    left.touch()
    app = make_app(settings=Settings(graphics="off", keep_deleted=keep_deleted))
    async with app.run_test():
        app.stored.keep_house()
        await app.workers.wait_for_complete()
        deleted = await app.services.store.run(lambda store: store.deleted())
        assert [one.id for one in deleted] == ([gone] if is_kept else [])
        assert draft_file(paths, gone).exists() is is_kept and draft_file(paths, other).exists()
    assert not left.exists(), "a process that was killed had left it"


def damage(paths: Paths) -> None:
    """Overwrite the database's header with zeros."""
    with (paths.data / FILE).open("r+b") as file:
        file.write(bytes(100))


async def test_a_damaged_database_is_reported_and_not_copied(make_app: MakeApp, tmp_path: Path) -> None:
    paths = Paths.below(tmp_path)
    keeper = AsyncStore(paths)
    await keeper.run(three)
    await keeper.close()
    damage(paths)
    app = make_app(settings=Settings(graphics="off"))
    async with app.run_test() as pilot:
        app.stored.keep_house()
        await app.workers.wait_for_complete()
        await until(pilot, lambda: any("is damaged" in toast.message for toast in app._notifications))
    assert list((paths.data / "backups").iterdir()) == []


@pytest.mark.parametrize("is_yes", [True, False])
async def test_a_damaged_database_is_replaced_by_a_backup_after_a_yes(
    make_app: MakeApp, tmp_path: Path, is_yes: bool
) -> None:
    paths = Paths.below(tmp_path)
    keeper = AsyncStore(paths)
    await keeper.run(three)
    await keeper.close()
    assert back_up_daily(paths.data) is not None
    damage(paths)
    app = make_app(settings=Settings(graphics="off"))
    async with app.run_test() as pilot:
        await until(pilot, lambda: isinstance(app.screen, ChoiceScreen) and bool(app.screen.query(".title")))
        told = str(app.screen.query_one(".title", Static).content)
        assert "conversations.db is damaged" in told and "The newest good backup" in told and "The damaged file" in told
        await pilot.press(*(["down", "enter"] if is_yes else ["escape"]))
        await until(pilot, lambda: any("damaged" in toast.message for toast in app._notifications))
        if is_yes:
            assert len(await app.services.store.run(lambda store: store.conversations())) == 3
        else:
            with pytest.raises(StoreError):
                await app.services.store.run(lambda store: store.conversations())
    assert bool(list(paths.data.glob("*.replaced-*"))) is is_yes


def meet_damage(store: Store) -> None:
    store.database.is_damaged = True


async def test_damage_that_is_met_in_a_chat_asks_and_the_chat_is_saved_in_the_backup(chatting: StartChat) -> None:
    async with chatting(["First."], ["Second."], ["Third."]) as chat:
        await chat.say("one")
        paths = chat.app.services.paths
        assert back_up_daily(paths.data) is not None
        await chat.say("two")
        with closing(sqlite3.connect(paths.data / FILE, isolation_level=None)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        damage(paths)
        (paths.data / f"{FILE}-wal").unlink(missing_ok=True)
        await chat.app.services.store.run(meet_damage)
        await chat.send("three")
        await chat.until(lambda: isinstance(chat.app.screen, ChoiceScreen))
        await chat.pilot.press("down", "enter")
        await chat.until(lambda: not chat.controller.recorder.waiting)
        found = await chat.app.services.store.run(lambda store: store.conversations())
        [shown] = [one.conversation for one in found if one.conversation.id == chat.controller.id]
        said = await chat.app.services.store.run(lambda store: store.path(shown.id))
        assert [turn.text for turn in said if turn.role == "user"] == ["one", "two", "three"]


async def test_the_newest_conversations_are_listed_and_search_finds_older_ones(
    listing: ShowList, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation_list, "LISTED_MAX", MANY - 50)

    def fill(store: Store) -> None:
        with store.together():
            for number in range(MANY):
                store.new_conversation(title=f"conversation {number}", model="shapes")

    async with listing(fill) as shown:
        assert shown.titles == [f"conversation {number}" for number in reversed(range(50, MANY))]
        assert "200+" in shown.text()
        await shown.press("down", "down", "pagedown", "up")
        assert 1 < shown.view.highlighted < MANY - 51
        await shown.press("end")
        await shown.until(lambda: "conversation 50 " in shown.text())
        assert len(shown.screen.query("*")) < 60, "an entry is no widget"
        await shown.press("delete")
        await shown.until(lambda: shown.titles[-1] == "conversation 49")
        await shown.search("conversation 7")
        assert {"conversation 7", "conversation 70"} <= set(shown.titles)


async def test_keys_that_come_at_once_act_in_their_order(listing: ShowList) -> None:
    async with listing(three) as shown:
        shown.press_at_once("down", "e", "home", *"new ", "enter", "down", "e", "end", *" too", "enter")
        view = shown.view
        await shown.until(lambda: view.rows[1].conversation.title == "new Cats")
        await shown.until(lambda: view.rows[2].conversation.title == "Shapes too" and view.has_focus)
        assert not any(entry.conversation.pinned for entry in shown.view.rows)


async def test_pinning_or_deleting_twice_at_once(listing: ShowList) -> None:
    async with listing(three) as shown:
        shown.press_at_once("end", "asterisk", "asterisk", "asterisk")
        await shown.until(lambda: shown.titles == ["Shapes", "Receipts", "Cats"])
        shown.press_at_once("asterisk", "asterisk", "asterisk")
        await shown.until(lambda: shown.titles == ["Receipts", "Cats", "Shapes"])
        shown.press_at_once("home", "delete", "delete")
        await shown.until(lambda: shown.titles == ["Shapes"])
        shown.press_at_once("u", "u")
        await shown.until(lambda: shown.titles == ["Receipts", "Cats", "Shapes"])


@pytest.mark.parametrize("keys", ["ctrl+n", "asterisk", "delete", "enter", "escape enter"])
async def test_keys_typed_after_escape_do_nothing(listing: ShowList, keys: str) -> None:
    async with listing(three) as shown:
        before = await shown.store.run(lambda store: store.conversations())
        shown.press_at_once("escape", *keys.split())
        await shown.until(lambda: isinstance(shown.app.screen, PlainChat))
        await shown.pilot.pause(0.2)
        assert not shown.opened
        assert await shown.store.run(lambda store: store.conversations()) == before
        assert isinstance(shown.app.screen, PlainChat) and len(shown.app.screen_stack) == 1


async def test_a_new_chat_is_begun_once(chatting: StartChat) -> None:
    async with chatting() as chat:
        await chat.pilot.press("ctrl+l")
        await chat.until(lambda: isinstance(chat.app.screen, ConversationsScreen))
        await chat.pilot.pause()
        for _ in range(2):
            chat.app.post_message(events.Key("ctrl+n", None))
        await chat.until(lambda: isinstance(chat.app.screen, ChatScreen))
        await chat.pilot.pause(0.2)
        assert isinstance(chat.app.screen, ChatScreen)


async def test_a_search_entered_at_once_opens_its_match(listing: ShowList) -> None:
    async with listing(three) as shown:
        shown.press_at_once("slash", *"sofa", "enter")
        await shown.until(lambda: bool(shown.opened))
        assert shown.titles == ["Cats"]
        assert shown.opened == [shown.view.rows[0].id]
        await shown.press("escape")
        await shown.until(lambda: len(shown.titles) == 3)
        shown.press_at_once("slash", "a", "down", "enter")
        await shown.until(lambda: len(shown.opened) == 2)
        assert len(shown.titles) > 1
        assert shown.opened[1] == shown.view.rows[1].id


async def test_an_unsent_draft_is_found_again(listing: ShowList) -> None:
    def fill(store: Store) -> None:
        new = store.new_conversation(model="shapes")
        store.save_draft(new, StoredDraft(text="Compare these\ntwo receipts \x1b[2J"))
        begun = talk(store, "Cats", ("Who is it?", "Two cats."))
        store.save_draft(begun, StoredDraft(text="And how old?"))

    async with listing(fill, size=(120, 40)) as shown:
        assert "Draft: Compare these two receipts ␛[2J" in shown.text()
        await shown.until(lambda: "Two cats." in shown.preview and "And how old?" in shown.preview)
        await shown.press("down")
        await shown.until(lambda: "two receipts" in shown.preview)
        assert "\x1b" not in shown.text() + shown.preview
        await shown.search("cats")
        assert shown.titles == ["Cats"]


async def test_hostile_text_is_shown_and_not_obeyed(listing: ShowList) -> None:
    def fill(store: Store) -> None:
        talk(store, f"title {HOSTILE}", (f"question {HOSTILE}", f"answer {HOSTILE}"), model=f"model {HOSTILE}")

    async with listing(fill, size=(120, 40)) as shown:
        await shown.until(lambda: "answer" in shown.preview)
        text = shown.text()
        assert "\x1b" not in text + shown.preview
        assert "\u202e" not in text + shown.preview
        assert "title ␛[2J[/x] <U+202E>gnp" in text
        await shown.search("answer")
        await shown.until(lambda: "␛" in shown.text().split("answer", 1)[1])
        assert "\x1b" not in shown.text()
        await shown.press("escape", "e")
        await shown.until(lambda: isinstance(shown.app.screen, NameScreen))
        assert "\x1b" not in "".join(strip.text for strip in shown.app.screen._compositor.render_strips())


@pytest.mark.parametrize(("width", "is_wide"), [(80, False), (109, False), (110, True), (160, True)])
async def test_the_last_messages_are_beside_the_list_where_there_is_room(
    listing: ShowList, width: int, is_wide: bool
) -> None:
    async with listing(size=(width, 24)) as shown:
        await shown.until(lambda: shown.screen.query_one("#side").display is is_wide)
        if is_wide:
            await shown.until(lambda: "Total: 12.80" in shown.preview)
            await shown.press("down")
            await shown.until(lambda: "Two cats on a sofa." in shown.preview)
            await shown.search("left")
            await shown.until(lambda: "At the left." in shown.preview and "red" not in shown.preview)


async def test_attachments_are_counted(listing: ShowList, tmp_path: Path) -> None:
    def fill(store: Store) -> None:
        item = stage(picture(tmp_path), store.media)
        talk(store, "With", ("What is it?", "A red picture."), attachments=[item])
        talk(store, "Without", ("Hello", "Hello."))

    async with listing(fill) as shown:
        assert shown.text().count("1 attachment") == 1


async def test_an_unreadable_store_is_reported(listing: ShowList, monkeypatch: pytest.MonkeyPatch) -> None:
    async with listing() as shown:

        def refused(*_: object, **__: object) -> None:
            raise bad_input("The disk is gone [/x].")

        monkeypatch.setattr(Store, "conversations", refused)
        monkeypatch.setattr(Store, "pin", refused)
        await shown.press("asterisk")
        await shown.until(lambda: "The disk is gone [/x]." in shown.notes)
        assert shown.titles == ["Receipts", "Cats", "Shapes"]


async def test_n_asks_for_a_new_chat(listing: ShowList) -> None:
    async with listing() as shown:
        await shown.press("ctrl+n")
        await shown.until(lambda: "That is not possible here." in shown.notes)
        assert isinstance(shown.app.screen, PlainChat), "which can't begin a chat"


async def test_every_hint_of_the_footer_fits_on_a_small_terminal(listing: ShowList) -> None:
    async with listing() as shown:
        bar = shown.screen.query_one(FooterBar)
        await shown.until(lambda: "Delete" in [item.title for item in bar.items])
        for item, region in bar.placed():
            assert shown.screen.region.contains_region(region), item.title


def test_times_are_short() -> None:
    now = datetime(2026, 3, 12, 15, 0)
    before = {
        timedelta(seconds=20): "just now",
        timedelta(minutes=5): "5 min ago",
        timedelta(hours=3): "3 h ago",
        timedelta(hours=20): "yesterday",
        timedelta(days=2): "Tuesday",
        timedelta(days=30): "10 Feb",
        timedelta(days=400): "5 Feb 2025",
        timedelta(seconds=-90): "just now",
    }
    for age, told in before.items():
        assert ago(int((now - age).timestamp() * 1000), now.timestamp()) == told


def test_a_snippet_is_one_line() -> None:
    line = snippet_content(Snippet("a\n\x1bred\tcircle", ((3, 6),)))
    assert line.plain == "a ␛red circle"


async def test_the_chat_goes_on_with_the_chosen_conversation_and_begins_new_ones(chatting: StartChat) -> None:
    async with chatting(["First answer."], ["Second answer."]) as chat:
        await chat.say("first question")
        first = chat.controller.id
        await chat.pilot.press("ctrl+l")
        await chat.until(lambda: isinstance(chat.app.screen, ConversationsScreen))
        await chat.pilot.press("ctrl+n")
        await chat.until(lambda: isinstance(chat.app.screen, ChatScreen) and not chat.controller.exchanges)
        await chat.say("second question")
        assert chat.controller.id != first
        await chat.send("/conversations")
        await chat.until(lambda: isinstance(chat.app.screen, ConversationsScreen))
        view = chat.app.screen.query_one(ConversationListView)
        await chat.until(lambda: len(view.rows) == 2)
        await chat.pilot.press("down")
        await chat.until(lambda: view.current is not None and view.current.id == first)
        await chat.pilot.press("enter")
        await chat.until(lambda: isinstance(chat.app.screen, ChatScreen) and chat.controller.id == first)
        await chat.until(lambda: "First answer." in chat.screen_text())
        assert "Second answer." not in chat.screen_text()


def bring(store: Store) -> ConversationId:
    """Store an imported conversation."""
    original = talk(store, "Results", ("Who?", "Two cats."))
    data = to_json_document(document_of(store, original), Place(inline=True)).text.encode()
    store.purge(original)
    return add_document(store, read_document(data), Path()).conversation


async def test_an_imported_conversation_says_so_in_the_list(listing: ShowList) -> None:
    async with listing(bring) as shown:
        assert "imported · shapes" in shown.text()


async def test_an_imported_conversation_says_so_in_the_chat_until_a_message_is_sent(chatting: StartChat) -> None:
    async with chatting(["Three."]) as chat:
        conversation = await chat.app.services.store.run(bring)
        await chat.controller.open(conversation)
        assert isinstance(chat.app.screen, ChatScreen)
        await chat.app.screen.show_conversation()
        await chat.until(lambda: "Imported: its messages" in chat.screen_text())
        await chat.say("How many?")
        await chat.until(lambda: "Imported: its messages" not in chat.screen_text())


async def test_text_typed_after_enter_goes_into_the_opened_chat(chatting: StartChat) -> None:
    async with chatting() as chat:
        await chat.app.services.store.run(lambda store: talk(store, "Cats", ("Who?", "Two cats.")))
        for key in ("ctrl+l", "enter", *"unpin"):
            chat.app.post_message(events.Key(key, key if len(key) == 1 else None))
        await chat.until(lambda: isinstance(chat.app.screen, ChatScreen) and "Two cats." in chat.screen_text())
        await chat.until(lambda: chat.composer.text == "unpin")
