"""The options --image and --video, and where their files stand in the question."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from PIL import Image

from tests.support.command_line import CommandLine, opened
from tests.support.sounds import write_tone, write_with_pictures
from tests.unit.media.made import video
from vlmtui.cli.attachments import stage_attachments, turns_with_placed
from vlmtui.domain.conversation import Attachment, Media, Modality, Part, Text
from vlmtui.errors import VlmtuiError
from vlmtui.media.images import open_prepared
from vlmtui.paths import Paths, bundled

CIRCLE = bundled("samples") / "circle.png"


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths.below(tmp_path / "vlmtui")


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[CommandLine]:
    with opened(tmp_path / "vlmtui", monkeypatch, capsys) as cli:
        yield cli


def draw(path: Path, colour: str = "red") -> Path:
    Image.new("RGB", (8, 6), colour).save(path)
    return path


def animation(path: Path) -> Path:
    frames = [Image.new("RGB", (8, 6), colour) for colour in ("red", "green", "blue")]
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=100, loop=0)
    return path


def stage(paths: Paths, *given: tuple[Modality, str], many: bool = False) -> list[Attachment]:
    return stage_attachments(paths, given, num_frames=4, many=many)


def test_quoted_addresses_of_files_patterns_and_folders(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "my shots"
    folder.mkdir()
    for name in ("2.png", "10.png", "it's.png"):
        draw(folder / name)
    url = f"file://{quote(str(folder / '2.png'))}"
    assert [item.name for item in stage(paths, ("image", f"'{url}'"))] == ["2.png"]
    assert [item.name for item in stage(paths, ("image", str(folder / "it's.png")))] == ["it's.png"]
    assert [item.name for item in stage(paths, ("image", str(folder / "[0-9]*.png")))] == ["2.png", "10.png"]
    assert len(stage(paths, ("image", str(folder)))) == 3
    monkeypatch.chdir(folder)
    assert [item.name for item in stage(paths, ("image", "*s.png"), ("image", "10.png"))] == ["it's.png", "10.png"]


def test_damage_and_what_a_viewer_shows_otherwise_are_told(
    paths: Paths, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draw(tmp_path / "plain.png")
    Image.new("RGB", (8, 6)).save(tmp_path / "small.tif", tiffinfo={254: 1})
    whole = write_tone(tmp_path / "tone.wav").read_bytes()
    (tmp_path / "tone.wav").write_bytes(whole[:-1000])
    given: list[tuple[Modality, str]] = [("image", "plain.png"), ("image", "small.tif"), ("audio", "tone.wav")]
    stage(paths, *((kind, str(tmp_path / name)) for kind, name in given))
    assert capsys.readouterr().err.splitlines() == [
        "warning: small.tif: not as in a viewer: a reduced copy of another image.",
        "warning: tone.wav: damaged: cut off, 1,000 bytes are missing.",
    ]


def test_a_folder_gives_only_the_requested_kind(paths: Paths, tmp_path: Path) -> None:
    folder = tmp_path / "mixed"
    folder.mkdir()
    draw(folder / "a.png")
    draw(folder / "b.png")
    video(folder / "c.mp4", frames=3)
    assert [item.name for item in stage(paths, ("image", str(folder)))] == ["a.png", "b.png"]
    [film] = stage(paths, ("video", str(folder)))
    assert (film.name, film.modality) == ("c.mp4", "video")
    assert film.sampling is not None
    assert film.sampling.num_frames == 4


def test_pages_of_a_document_with_dots_per_inch(paths: Paths, tmp_path: Path) -> None:
    page = Image.new("RGB", (400, 200), "red")
    page.save(tmp_path / "paper.pdf", save_all=True, append_images=[page], resolution=100)
    found = stage(paths, ("image", f"{tmp_path / 'paper.pdf'}#page=1-2&dpi=50"))
    assert [(one.page, one.width) for one in found] == [(1, 200), (2, 200)]
    with pytest.raises(VlmtuiError, match="not a PDF document"):
        stage(paths, ("image", f"{CIRCLE}#dpi=50"))


def test_a_page_of_a_document(paths: Paths, tmp_path: Path) -> None:
    scan = tmp_path / "scan.tiff"
    pages = [Image.new("RGB", (8, 6), colour) for colour in ("red", "lime")]
    pages[0].save(scan, save_all=True, append_images=pages[1:])
    [first, second] = stage(paths, ("image", str(scan)), ("image", f"{scan}#page=2"))
    assert (first.page, second.page, second.pages) == (1, 2, 2)
    assert open_prepared(first.path).getpixel((0, 0)) == (255, 0, 0)
    assert open_prepared(second.path).getpixel((0, 0)) == (0, 255, 0)
    with pytest.raises(VlmtuiError, match="no page 3"):
        stage(paths, ("image", f"{scan}#page=3"))
    odd = tmp_path / "odd#page=2"
    odd.write_bytes(CIRCLE.read_bytes())
    assert stage(paths, ("image", str(odd)))[0].name == "odd#page=2"


def test_an_animation_is_image_or_video_as_requested(paths: Paths, tmp_path: Path) -> None:
    moving = str(animation(tmp_path / "moving.gif"))
    [still, film] = stage(paths, ("image", moving), ("video", moving))
    assert (still.modality, film.modality) == ("image", "video")
    assert open_prepared(still.path).getpixel((0, 0)) == (255, 0, 0)
    with pytest.raises(VlmtuiError, match="an image, not a video"):
        stage(paths, ("video", str(CIRCLE)))


def test_many_files_for_one_argument_need_many(cli: CommandLine, paths: Paths, tmp_path: Path) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(21):
        draw(folder / f"{number}.png")
    ran = cli("ask", "what?", "--image", str(folder))
    assert (ran.code, ran.out) == (2, "")
    assert "21 files" in ran.err
    assert "--many" in ran.err
    assert len(stage(paths, ("image", str(folder)), many=True)) == 21


def test_missing_files_are_reported(cli: CommandLine, tmp_path: Path) -> None:
    for given, words in (
        (str(tmp_path / "no-*.png"), "matches no image"),
        (str(tmp_path), "no images or videos"),
        ("", "Nothing to attach"),
        ("ftp://host/x.png", "does not exist"),
    ):
        ran = cli("ask", "what?", "--image", given)
        assert (ran.code, ran.out) == (2, "")
        assert words in ran.err


def test_a_picture_of_the_web(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = CIRCLE.read_bytes()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None: ...

    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/circle.png"
        [item] = stage(paths, ("image", url))
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert (item.width, item.source) == (320, url)


def shown(parts: tuple[Part, ...]) -> list[str]:
    return [part.text if isinstance(part, Text) else f"<{part.attachment.name}>" for part in parts]


def test_tokens_place_attachments_and_the_others_stand_before(
    paths: Paths, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    film = str(video(tmp_path / "film.mp4", frames=3))
    items = stage(paths, ("image", str(draw(tmp_path / "a.png"))), ("video", film), ("image", str(CIRCLE)))
    turn = turns_with_placed("", "Is [Image #3] like [Video #2]? [Image #2] [Image #9]", items)[0]
    assert shown(turn.parts) == [
        "<a.png>", "Is ", "<circle.png>", " like ", "<film.mp4>", "? [Image #2] [Image #9]",
    ]  # fmt: skip
    errors = capsys.readouterr().err
    assert "[Image #2] does not match any attachment" in errors
    assert "[Image #9] does not match any attachment" in errors
    assert shown(turns_with_placed("", "[Image #1]", [])[0].parts) == ["[Image #1]"]
    assert isinstance(turns_with_placed("", "q", items[:1])[0].parts[0], Media)
    assert capsys.readouterr().err == ""


def test_a_placed_attachment_is_sent_there(cli: CommandLine) -> None:
    answer = cli.json("ask", "see [Image #1] here", "--image", str(CIRCLE), "--mode", "raw")
    assert "see <|vision_start|>" + "<|image_pad|>" * 16 + "<|vision_end|> here" in answer["prompt"]


def test_the_prompt_command_estimates_without_an_engine(cli: CommandLine) -> None:
    found = cli.json("prompt", "qwen2_vl", "see [Image #1] here", "--image", str(CIRCLE))
    [item] = found["attachments"]
    assert (item["name"], item["width"]) == ("circle.png", 320)
    assert item["estimated_tokens"] == pytest.approx((320 / 28) ** 2, rel=0.2)
    assert "see <|vision_start|><|image_pad|><|vision_end|> here" in found["prompt"]
    ran = cli("prompt", "qwen2_vl", "q", "--image", str(CIRCLE))
    assert "estimated by the record" in ran.err
    assert "attachments" not in json.loads(cli("prompt", "qwen2_vl", "q", "--json").out)
    assert cli.workers == []


def test_a_sound_and_the_audio_track_of_a_video_are_attached_with_audio(paths: Paths, tmp_path: Path) -> None:
    tone, clip = write_tone(tmp_path / "tone.wav"), write_with_pictures(tmp_path / "clip.mp4")
    staged = stage(paths, ("audio", str(tone)), ("video", str(clip)), ("audio", str(clip)))
    assert [item.modality for item in staged] == ["audio", "video", "audio"]
    turn = turns_with_placed("", "[Audio #1] or [Audio #3]?", staged)[0]
    assert turn.parts == (Media(staged[1]), Media(staged[0]), Text(" or "), Media(staged[2]), Text("?"))
    with pytest.raises(VlmtuiError, match="is a sound, not a video"):
        stage(paths, ("video", str(tone)))
    with pytest.raises(VlmtuiError, match=r"moving-circle\.mp4 has no sound"):
        stage(paths, ("audio", str(bundled("samples") / "moving-circle.mp4")))


def test_prompt_shows_the_processors_input(cli: CommandLine) -> None:
    given = ("--set", "max_dynamic_patch=3", "--set", "stop=END")
    found = cli.json("prompt", "internvl_chat", "q", "--images", "2", *given)
    assert found["mm_processor_kwargs"] == {"max_dynamic_patch": 3} and found["parameters"] == {"stop": ["END"]}
    of_record = cli.json("prompt", "internvl_chat", "q", "--images", "2")
    assert of_record["mm_processor_kwargs"] == {"max_dynamic_patch": 4}
    plain = cli.json("prompt", "internvl_chat", "q", "--images", "1")
    assert (plain["mm_processor_kwargs"], plain["parameters"]) == ({}, {})
    assert (
        "max_dynamic_patch must be a whole number" in cli("prompt", "internvl_chat", "q", "--set", given[1] + "x").err
    )
