# ruff: noqa: E501  (tables)
"""Places in answers, read by the records' own conventions: published examples to pixels of the picture."""

from __future__ import annotations

import time
from collections import Counter
from typing import get_args

import pytest
from PIL import Image

from tests.support.cases import in_one_test
from vlmtui.inspection.grounding import MARKS_MAX, find_marks, find_time_ranges, place_mark
from vlmtui.registry.loader import Registry
from vlmtui.registry.schema import Grounding, GroundingFormat, PatchTokens
from vlmtui.session.answer_places import draw_marks

REGISTRY = Registry.bundled()
THOUSAND = (1000, 1000)
CAKES = '```json\n[\n  {"bbox_2d": [139, 768, 315, 954], "label": "small cake"},\n  {"bbox_2d": [366, 679, 536, 849], "label": "small cake"}\n]\n```'
GOLDEN: list[tuple[str, str, tuple[int, int], list[tuple[str, tuple[float, ...]]]]] = [
    # QwenLM/Qwen-VL, README
    ("qwen_vl_chat", "<ref>击掌</ref><box>(536,509),(588,602)</box>", THOUSAND, [("击掌", (536, 509, 588, 602))]),
    ("qwen2_vl", "<|object_ref_start|>击掌<|object_ref_end|><|box_start|>(536,509),(588,602)<|box_end|>", (500, 2000),
     [("击掌", (268, 1018, 294, 1204))]),
    ("qwen2_vl", "(536,509),(588,602)", THOUSAND, [("", (536, 509, 588, 602))]),  # without its special tokens
    # QwenLM/Qwen2.5-VL, cookbook of spatial understanding; 1,008 pixels stay 1,008 in whole patches of 28
    ("qwen2_5_vl", CAKES, (1008, 1008), [("small cake", (139, 768, 315, 954)), ("small cake", (366, 679, 536, 849))]),
    # roboflow/supervision, documentation of Detections.from_vlm
    ("qwen3_vl", '[{"bbox_2d": [139, 768, 315, 954], "label": "cat"}]', (500, 100),
     [("cat", (69.5, 76.8, 157.5, 95.4))]),
    ("qwen3_vl", '{"point_2d": [394, 105], "label": "bird"}', THOUSAND, [("bird", (394, 105, 394, 105))]),
    ("paligemma", "<loc0256><loc0256><loc0768><loc0768> cat", THOUSAND, [("cat", (250, 250, 750, 750))]),
    ("paligemma", "<loc0000><loc0512><loc0256><loc1024> cat", (100, 200), [("cat", (50, 0, 100, 50))]),
    ("paligemma2", "<loc0256><loc0256><loc0768><loc0768> cat ; <loc0256><loc0256><loc0768><loc0768> dog", (1024, 1024),
     [("cat", (256, 256, 768, 768)), ("dog", (256, 256, 768, 768))]),
    # Microsoft's model card of Florence-2, and the tests of transformers.js: the picture is 640 by 480 pixels
    ("florence2", "car<loc_53><loc_333><loc_933><loc_774>", (640, 480), [("car", (34.24, 160.08, 597.44, 371.76))]),
    ("florence2", "door<loc_712><loc_203><loc_906><loc_545>", (640, 480), [("door", (456.0, 97.68, 580.16, 261.84))]),
    ("florence2", "wheel<loc_704><loc_576><loc_866><loc_772><loc_149><loc_584><loc_310><loc_773></s>", (640, 480),
     [("wheel", (450.88, 276.72, 554.56, 370.8)), ("wheel", (95.68, 280.56, 198.72, 371.28))]),
    # roboflow/supervision, from_deepseek_vl_2
    ("deepseek_vl_v2", "<|ref|>The giraffe at the back<|/ref|><|det|>[[580, 270, 999, 904]]<|/det|>"
     "<|ref|>The giraffe at the front<|/ref|><|det|>[[26, 31, 632, 998]]<|/det|>", (999, 999),
     [("The giraffe at the back", (580, 270, 999, 904)), ("The giraffe at the front", (26, 31, 632, 998))]),
    # DeepSeek-VL2's special tokens, as its documentation shows them
    ("deepseek_ocr", "<|ref|>The giraffe at the back.<|/ref|><|det|>[[580, 270, 999, 900]]<|/det|>", (999, 999),
     [("The giraffe at the back.", (580, 270, 999, 900))]),
    # Answers of DeepSeek-OCR to pages of mathematics, as published with the lessons that were read
    ("deepseek_ocr", "<|ref|>image<|/ref|><|det|>[[118, 83, 740, 344]]<|/det|>\n \n\n<|ref|>text<|/ref|><|det|>"
     "[[118, 346, 300, 365]]<|/det|>\nGemäss Skizze gilt ", (1998, 999),
     [("image", (236, 83, 1480, 344)), ("text", (236, 346, 600, 365))]),
    ("deepseek_ocr", "<|ref|>equation<|/ref|><|det|>[[120, 84, 275, 100]]<|/det|>\n\\(f = (x+1)*2*x;\\)", (999, 999),
     [("equation", (120, 84, 275, 100))]),
    # InternVL's documentation of its chat data format
    ("internvl_chat", "<ref>a cat</ref><box>[[539, 182, 963, 998]]</box>", (500, 2000),
     [("a cat", (269.5, 364, 481.5, 1996))]),
    # An answer of GLM-4.6V, as reported to its maintainers
    ("glm4_5v", "on the table are <|begin_of_box|>[[94,598,177,991]]<|end_of_box|>.", THOUSAND,
     [("", (94, 598, 177, 991))]),
    # GLM-4.xV's format as guides for its users show it
    ("glm4_1v", "The button is located at <|begin_of_box|>[[340,520,480,560]]<|end_of_box|> in normalized coordinates.",
     (500, 2000), [("", (170, 1040, 240, 1120))]),
    ("glm4_5v", "[[94,598,177,991]]", (100, 100), [("", (9.4, 59.8, 17.7, 99.1))]),  # without its special tokens
    # Molmo's format as its users train and test it
    ("molmo", '<point x="10.0" y="10.0" alt="alt text">Inline text</point>', (200, 100),
     [("Inline text", (20, 10, 20, 10))]),
    ("molmo", '<points x1="14.0" y1="73.2" x2="16.7" y2="63.6" alt="lids">lids</points>', THOUSAND,
     [("lids", (140, 732, 140, 732)), ("lids", (167, 636, 167, 636))]),
    ("molmo", '<point x="52.3" y="61.0" alt="the dog">the dog</point>', (200, 100),
     [("the dog", (104.6, 61, 104.6, 61))]),
    ("molmo", '<points x1="14.0" y1="73.2" x2="16.7" y2="63.6" x3="96.5" y3="59.0" alt="cover">红色 cover</points>',
     THOUSAND, [("红色 cover", (x, y, x, y)) for x, y in ((140, 732), (167, 636), (965, 590))]),
    # Molmo2's technical report, appendix A: points on images 1, 2 and 5 ("Inline text"), and two objects in a video
    ("molmo2", '<points coords="1 1 555 169;2 3 649 154 4 709 162;5 5 758 175 6 808 183 7 852 187">Inline text'
     "</points>", THOUSAND, [("Inline text", (x, y, x, y)) for x, y in
                ((555, 169), (649, 154), (709, 162), (758, 175), (808, 183), (852, 187))]),
    ("molmo2", '<tracks coords="0.0 1 635 522;0.5 1 606 490 2 511 124;1.0 2 515 164;1.5 2 520 168">Inline text'
     "</tracks>", (500, 2000), [("Inline text", (x / 2, y * 2, x / 2, y * 2)) for x, y in
                   ((635, 522), (606, 490), (511, 124), (515, 164), (520, 168))]),
    # Ai2's playground: an answer of its own tests, with leading zeros
    ("molmo2", 'Counting the <points coords="1 1 073 160 2 173 600 3 258 725 4 323 735 5 353 160" alt="boats">the boats'
     "</points> shows a total of 5.", (100, 100), [("the boats", (x / 10, y / 10, x / 10, y / 10)) for x, y in
                                                    ((73, 160), (173, 600), (258, 725), (323, 735), (353, 160))]),
    # Tests of a user who runs Molmo2 in vLLM
    ("molmo2", '<tracks coords="0.0 1 205 564;0.5 1 198 615;1.0 1 241 629">ball handler</tracks>', THOUSAND,
     [("ball handler", (x, y, x, y)) for x, y in ((205, 564), (198, 615), (241, 629))]),
]  # fmt: skip
WALKS = "A man walks through an archway into a building, passing a car parked outside."
ENTERS = "The man enters a grand hall with columns and a statue, walking towards a room filled with paintings and tapestries."
TIMES: list[tuple[str, list[tuple[float, float, str]]]] = [
    # Answers of Qwen2.5-VL to its cookbook's prompt, in a talk about screen archives
    (f'{{"start_time": "00:00.00", "end_time": "00:15.20", "description": "{WALKS}"}},', [(0, 15.2, WALKS)]),
    (f'{{"start_time": "00:15.20", "end_time": "00:34.80", "description": "{ENTERS}"}}', [(15.2, 34.8, ENTERS)]),
    # A prediction of Omni-R1 (Qwen2.5-Omni), in its paper
    ('"answer": {"start_time": "00:00.00", "end_time": "00:00.50","description": "white paper being folded"}',
     [(0, 0.5, "white paper being folded")]),
]  # fmt: skip

Places = list[tuple[str, tuple[float, ...]]]
_QWEN = '{"bbox_2d": [8, 67, 299, 275], "label": "%s"}'
ODD: dict[str, tuple[GroundingFormat, str, Places, int]] = {
    # format, answer, places (label, numbers), count of what can't be read
    "a point in tags": ("box_tags", "<|box_start|>(246,113)<|box_end|>", [("", (246, 113))], 0),
    "an action": ("box_tags", "click(start_box='<|box_start|>(246,113)<|box_end|>')", [("", (246, 113))], 0),
    "an action without tags": ("box_tags", "drag(start_box='(1,2)', end_box='(3, 4)')", [("", (1, 2)), ("", (3, 4))], 0),
    "an action with shares": ("box_tags", "click(start_box='[0.12, 0.5, 0.12, 0.5]')", [("", (0.12, 0.5, 0.12, 0.5))], 0),
    "a torn number": ("box_tags", "<|box_start|>(501,10), (995987)<|box_end|>", [], 1),
    "a torn box beside a whole one": ("box_tags", "<box>(1,2),(3,4)</box><box>(1,2),(3</box>", [("", (1, 2, 3, 4))], 1),
    "three numbers": ("box_tags", "<ref>cat</ref><box>(1,2,3)</box>", [], 1),
    "words in tags": ("box_tags", "<box>left</box>", [], 1),
    "InternVL": ("box_tags", "<ref>a cat</ref><box>[[1, 2, 3, 4], [5, 6, 7, 8]]</box>",
                 [("a cat", (1, 2, 3, 4)), ("a cat", (5, 6, 7, 8))], 0),
    "InternVL, one bad": ("box_tags", "<ref>a cat</ref><box>[[1, 2, 3, 4], [5, 6, 7]]</box>", [("a cat", (1, 2, 3, 4))], 1),
    "several boxes of a label": ("box_tags", "<ref>dogs</ref><box>(1,2),(3,4)</box><box>(5,6),(7,8)</box>",
                                 [("dogs", (1, 2, 3, 4)), ("dogs", (5, 6, 7, 8))], 0),
    "another label": ("box_tags", "<ref>dog</ref><box>(1,2),(3,4)</box> and <box>(5,6),(7,8)</box>",
                      [("dog", (1, 2, 3, 4)), ("", (5, 6, 7, 8))], 0),
    "a quadrilateral": ("box_tags", "<quad>(1,2),(3,4),(5,6),(7,8)</quad>", [("", (1, 2, 3, 4, 5, 6, 7, 8))], 0),
    "numbers and spaces": ("box_tags", "<bbox>1 2 3 4</bbox><point>5 6</point>", [("", (1, 2, 3, 4)), ("", (5, 6))], 0),
    "a sign in a label": ("box_tags", "<ref>a < b</ref><box>(1,2),(3,4)</box>", [("a < b", (1, 2, 3, 4))], 0),
    "a cut box": ("box_tags", "<box>(1,2),(3,4)</box> <box>(5,6", [("", (1, 2, 3, 4))], 1),
    "prose": ("box_tags", "At (1,2) and f(3) of [4, 5] < 6", [], 0),
    "five numbers beside four": ("det_tags", "<|ref|>a<|/ref|><|det|>[[1,2,3,4],[1,2,3,4,5]]<|/det|>", [("a", (1, 2, 3, 4))], 1),
    "no label": ("det_tags", "<|det|>[[1,2,3,4]]<|/det|>", [("", (1, 2, 3, 4))], 0),
    "a polygon": ("det_tags", "<|ref|>a<|/ref|><|det|>[[1,2,3,4,5,6]]<|/det|>", [("a", (1, 2, 3, 4, 5, 6))], 0),
    "CogVLM": ("brackets", "A man [[012,345,678,999]] and dogs [[1,2,3,4;5,6,7,8]].",
               [("", (12, 345, 678, 999)), ("", (1, 2, 3, 4)), ("", (5, 6, 7, 8))], 0),
    "GLM, a point and a torn box": ("brackets", "<|begin_of_box|>[[1,2]]<|end_of_box|><|begin_of_box|>[[1,2,3]]<|end_of_box|>",
                                    [("", (1, 2))], 1),
    "GLM, a short answer": ("brackets", "<|begin_of_box|>42 cats<|end_of_box|>", [], 0),
    "many digits": ("brackets", "[0.12345678901234, 0.2, 0.3, 0.4]", [("", (0.12345678901234, 0.2, 0.3, 0.4))], 0),
    "braces in a label": ("json", f"[{_QWEN % 'a {curly} brace'}]", [("a {curly} brace", (8, 67, 299, 275))], 0),
    "a brace in a label": ("json", f"```json\n[{_QWEN % 'a } brace'}]\n```", [("a } brace", (8, 67, 299, 275))], 0),
    "a quote in a label": ("json", _QWEN % 'a \\"6\\" pipe', [('a "6" pipe', (8, 67, 299, 275))], 0),
    "a quote before": ("json", f'The 5" pipe: {_QWEN % "pipe"}', [("pipe", (8, 67, 299, 275))], 0),
    "a name": ("json", '{"bbox_2d": [1, 2, 3, 4], "name": "cat"}', [("cat", (1, 2, 3, 4))], 0),
    "text of a page": ("json", '{"bbox_2d": [1, 2, 3, 4], "text_content": "Title"}', [("Title", (1, 2, 3, 4))], 0),
    "nested": ("json", '{"objects": [{"item": {"bbox_2d": [1, 2, 3, 4], "label": "a"}}]}', [("a", (1, 2, 3, 4))], 0),
    "a box and a point": ("json", '{"bbox_2d": [1, 2, 3, 4], "point_2d": [2, 3], "label": "a"}',
                          [("a", (1, 2, 3, 4)), ("a", (2, 3))], 0),
    "several in one": ("json", '{"bbox_2d": [[1, 2, 3, 4], [5, 6, 7, 8]]}', [("", (1, 2, 3, 4)), ("", (5, 6, 7, 8))], 0),
    "corners": ("json", '{"bbox": [[1, 2], [3, 4]], "label": "a"}', [("a", (1, 2, 3, 4))], 0),
    "sides": ("json", '{"box": {"x1": 1, "y1": 2, "x2": 3, "y2": 4}, "label": "a"}', [("a", (1, 2, 3, 4))], 0),
    "y before x": ("json", '[{"box_2d": [1, 2, 3, 4], "label": "a"}]', [("a", (2, 1, 4, 3))], 0),
    "an outline": ("json", '{"polygon": [[1, 2], [3, 4], [5, 6]], "label": "a"}', [("a", (1, 2, 3, 4, 5, 6))], 0),
    "a click": ("json", '{"name": "computer_use", "arguments": {"action": "left_click", "coordinate": [1, 2]}}', [("", (1, 2))], 0),
    "another box": ("json", '{"box": "cardboard", "points": 7}', [], 0),
    "shares": ("json", '{"bbox_2d": [0.1, 0.2, 0.3, 0.4]}', [("", (0.1, 0.2, 0.3, 0.4))], 0),
    "cut": ("json", f'[{_QWEN % "a"}, {{"bbox_2d": [1, 2', [("a", (8, 67, 299, 275))], 1),
    "cut in a label": ("json", f'[{_QWEN % "a"}, {{"bbox_2d": [1, 2, 3, 4], "label": "wh', [("a", (8, 67, 299, 275))], 1),
    "a torn object beside a whole one": ("json", f'[{{"bbox_2d": [1, 2, 3, 4], "label": "5" pipe"}},\n{_QWEN % "a"}]',
                                         [("a", (8, 67, 299, 275))], 1),
    "a key alone": ("json", '"bbox_2d": [1, 2, 3, 4]', [], 1),
    "a torn location": ("loc_after", "<loc0001><loc00x2><loc0003><loc0004> cat", [], 1),
    "three locations": ("loc_before", "cat<loc_1><loc_2><loc_3>", [], 1),
    "a mask": ("loc_after", "<loc0001><loc0002><loc0003><loc0004><seg000><seg127> cat", [("cat", (1, 2, 3, 4))], 0),
    "a sign in a point": ("point_tags", '<point x="1" y="2" alt="a > b">b</point>', [("b", (1, 2))], 0),
    "a torn point": ("point_tags", '<points x1="1" y1="2" x2="left" y2="top">b</points>', [("b", (1, 2))], 1),
    "single quotes": ("point_tags", "<point x='1' y='2'>b</point>", [("b", (1, 2))], 0),
    "a cut point": ("point_tags", '<point x="1" y="2">b</point> <point x="3" y=', [("b", (1, 2))], 1),
    "no coordinates": ("coords_tags", '<points alt="b">b</points>', [], 1),
}  # fmt: skip


@in_one_test(ODD)
def test_every_place_is_read_or_told(format: GroundingFormat, answer: str, places: Places, unreadable: int) -> None:
    found = find_marks(answer, Grounding(format=format, scale="thousand", source="a test"))
    read = [(mark.label, tuple(number for point in mark.points for number in point)) for mark in found.marks]
    assert (read, len(found.unreadable)) == (places, unreadable)
    assert all(answer[one.start : one.end] for one in found.marks)
    assert all(answer[start:end].strip() for start, end in found.unreadable)


@pytest.mark.parametrize("format", get_args(GroundingFormat))
def test_hostile_answers_are_read_in_time(format: GroundingFormat) -> None:
    pieces = ("{", '"', '\\"', '{"', '{"a":', "[", "<box>", "<ref>", "<|det|>[", "(1,2)", "(1,2),", " ", "<point ", "<loc", '{"box":1}',
              '"bbox_2d":', "<points x1=", "start_box='", "<box>[", "1,", "{'", "}")  # fmt: skip
    began = time.process_time()
    for piece in pieces:
        find_marks(piece * (100_000 // len(piece)), Grounding(format=format, scale="thousand", source="a test"))
        find_time_ranges(piece * (100_000 // len(piece)))
    assert time.process_time() - began < 20


@pytest.mark.parametrize(("answer", "wanted"), TIMES)
def test_published_time_ranges_are_read(answer: str, wanted: list[tuple[float, float, str]]) -> None:
    found = find_time_ranges(answer)
    assert found.unreadable == ()
    assert [(one.start_s, one.end_s, one.label) for one in found.ranges] == wanted
    for end in range(len(answer)):
        assert len(find_time_ranges(answer[:end]).ranges) <= len(wanted)


def test_times_are_seconds_or_clocks_and_anything_else_is_unreadable() -> None:
    written = [
        '{"start": 3, "end": 1.5}', '{"start_time": "1:02:03", "end_time": "1:02:04.5 s"}',
        '{"start": "00:05", "end": "12.5s", "caption": "\\ud800\\u001b[31m"}',
    ]  # fmt: skip
    found = find_time_ranges(" and ".join(written))
    times = [(one.start_s, one.end_s) for one in found.ranges]
    assert times == [(1.5, 3), (3723, 3724.5), (5, 12.5)]
    assert found.ranges[2].label == "?\x1b[31m"
    for bad in (
        '{"start": NaN, "end": 1}', '{"start": -1, "end": 1}', '{"start": true, "end": 1}',
        '{"start": "soon", "end": 2}', '{"start": 1e300, "end": 1}', '{"start": [1], "end": 1}',
        '{"start": "1:2:3:4", "end": 1}', '{"start": , "end": 1}',
    ):  # fmt: skip
        found = find_time_ranges(bad)
        assert (found.ranges, found.unreadable) == ((), ((0, len(bad)),)), bad
    many = find_time_ranges('{"start": 1, "end": 2}' * (MARKS_MAX + 5))
    assert len(many.ranges) == MARKS_MAX


@pytest.mark.parametrize("written", ["1 1 2", "1 2 3 4 5", "1", "", "1 1 555 169;2 3", "1 1 9999999999 1"])
def test_incomplete_point_coordinates_are_unreadable(written: str) -> None:
    grounding = REGISTRY["molmo2"].grounding
    assert grounding is not None
    assert find_marks(f'<points coords="{written}">x</points>', grounding).unreadable


def test_molmo2s_points_have_image_and_time() -> None:
    grounding = REGISTRY["molmo2"].grounding
    assert grounding is not None
    images, tracks = (find_marks(answer, grounding).marks for answer in (GOLDEN[-4][1], GOLDEN[-3][1]))
    assert [mark.where for mark in images] == [1, 2, 2, 5, 5, 5]
    assert [mark.where for mark in tracks] == [0, 0.5, 0.5, 1, 1.5]


@pytest.mark.parametrize(("family", "answer", "size", "wanted"), GOLDEN)
def test_published_examples_have_their_published_coordinates(
    family: str, answer: str, size: tuple[int, int], wanted: list[tuple[str, tuple[float, ...]]]
) -> None:
    record = REGISTRY[family]
    assert record.grounding is not None
    found = find_marks(answer, record.grounding)
    assert found.unreadable == ()
    placed = [place_mark(mark, record.grounding.scale, size, size) for mark in found.marks]
    assert [one.mark.label for one in placed] == [label for label, _ in wanted]
    for one, (_, xyxy) in zip(placed, wanted, strict=True):
        assert one.xyxy == pytest.approx(xyxy)
        assert answer[one.mark.start : one.mark.end]


@pytest.mark.parametrize(
    "written",
    [
        '{"bbox_2d": [1, 2, NaN, 4]}', '{"bbox_2d": [1, 2, 3]}', '{"bbox_2d": "all"}', '{"bbox_2d": [1, 2, 3, true]}',
        '{"bbox_2d": [1, 2, 3, 1e999]}', '{"bbox_2d": ' + "[" * 1900 + "}", '{"bbox_2d": [1, 2, 3, ' + "9" * 500 + "]}",
    ],
)  # fmt: skip
def test_invalid_coordinates_are_listed_as_unreadable(written: str) -> None:
    grounding = REGISTRY["qwen3_vl"].grounding
    assert grounding is not None
    found = find_marks(f"here: {written}", grounding)
    assert found.marks == ()
    assert found.unreadable == ((6, 6 + len(written)),)


def test_every_beginning_of_an_answer_can_be_read() -> None:
    for family, answer, _, wanted in GOLDEN:
        grounding = REGISTRY[family].grounding
        assert grounding is not None
        assert all(len(find_marks(answer[:end], grounding).marks) <= len(wanted) for end in range(len(answer)))


def test_marks_are_clipped_ordered_and_limited() -> None:
    grounding = Grounding(format="json", scale="pixels", source="a test")
    answer = '{"bbox_2d": [90, 80, -10, 20], "label": "\\u001b[31m"}' * (MARKS_MAX + 5)
    found = find_marks(answer, grounding)
    assert len(found.marks) == MARKS_MAX
    placed = place_mark(found.marks[0], "pixels", (50, 60))
    assert placed.xyxy == pytest.approx((0, 20, 50, 60))
    assert placed.is_clipped
    assert placed.is_swapped, "its right side is given first"
    drawn = draw_marks(Image.new("RGB", (50, 60)), [placed])
    assert drawn.size == (50, 60)
    assert drawn.getpixel((49, 40)) != (0, 0, 0)


def test_an_unencodable_label_is_replaced() -> None:
    grounding = Grounding(format="json", scale="pixels", source="a test")
    (mark,) = find_marks('{"bbox_2d": [1, 2, 3, 4], "label": "\\ud800 cat"}', grounding).marks
    assert mark.label == "? cat"


def test_the_number_of_a_point_in_the_corner_is_inside_of_the_picture() -> None:
    grounding = Grounding(format="point_tags", scale="percent", source="a test")
    (mark,) = find_marks('<point x="100" y="100" alt="end">end</point>', grounding).marks
    drawn = draw_marks(Image.new("RGB", (100, 100)), [place_mark(mark, "percent", (100, 100))])
    assert max(drawn.getchannel("G").tobytes()) > 100  # the number is white; the point is red on black


def test_resized_pixels_are_converted_to_original_pixels() -> None:
    rule = PatchTokens(min_pixels=784, max_pixels=1003520)
    assert rule.resized(2000, 1000, {}) == (1400, 700)
    grounding = REGISTRY["qwen2_5_vl"].grounding
    assert grounding is not None
    (mark,) = find_marks('{"bbox_2d": [140, 70, 700, 350], "label": "cat"}', grounding).marks
    assert place_mark(mark, "resized", (2000, 1000), (1400, 700)).xyxy == pytest.approx((200, 100, 1000, 500))
    with pytest.raises(ValueError, match="unknown"):
        place_mark(mark, "resized", (2000, 1000))


def test_every_format_has_three_examples() -> None:
    records = [REGISTRY[family].grounding for family, *_ in GOLDEN]
    formats = Counter(record.format for record in records if record is not None)
    assert set(formats) == set(get_args(GroundingFormat))
    assert min(formats.values()) >= 3
