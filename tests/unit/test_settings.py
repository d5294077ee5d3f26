"""The sources of settings, and messages about wrong ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from vlmtui.config.duration import describe_duration, parse_duration
from vlmtui.config.settings import SamplingSettings, Settings, config_file, load_settings
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import VlmtuiError
from vlmtui.paths import Paths


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    paths = Paths.below(tmp_path)
    paths.config.mkdir()
    return paths


def write(paths: Paths, text: str) -> None:
    config_file(paths).write_text(text)


def test_without_a_file_the_defaults_hold(paths: Paths) -> None:
    settings = load_settings(paths, {})
    assert settings == Settings()
    assert settings.keep_alive_s == 300
    assert settings.keep_deleted_s == 30 * 86_400
    assert settings.sampling.over(None) == Sampling()


def test_each_place_goes_before_the_one_below(paths: Paths) -> None:
    write(paths, 'model = "file"\ngraphics = "sixel"\n[sampling]\ntemperature = 0.1\ntop_p = 0.5\nseed = 1\n')
    environment = {"VLMTUI_MODEL": "environment", "VLMTUI_TEMPERATURE": "0.2", "VLMTUI_SEED": "2"}
    settings = load_settings(paths, environment, {"temperature": 0.3, "model": None})
    assert settings.model == "environment"
    assert settings.graphics == "sixel"
    assert settings.sampling == SamplingSettings(temperature=0.3, top_p=0.5, seed=2)


def test_the_users_settings_override_the_record() -> None:
    base = Sampling(temperature=0.7, top_p=0.8, max_tokens=64)
    assert SamplingSettings(temperature=0.0).over(base) == Sampling(temperature=0.0, top_p=0.8, max_tokens=64)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("modell = 'x'", ["config.toml", "'modell'", "Did you mean 'model'?"]),
        ("[sampling]\ntemprature = 1", ["config.toml", "'sampling.temprature'", "'sampling.temperature'?"]),
        ("temperature = 1", ["'temperature'", "'sampling.temperature'?"]),
        ("zzz = 1", ["Known: model, keep_alive"]),
        ("[sampling]\ntemperature = 'hot'", ["config.toml", "sampling.temperature", "expected", "got str"]),
        ("[sampling]\ntop_p = 2.0", ["config.toml", "top-p must be above 0"]),
        ("graphics = 'png'", ["config.toml", "graphics", "'png'"]),
        ("keep_alive = 'soon'", ["config.toml", "keep_alive", "5m, 90s"]),
        ("keep_deleted = 'soon'", ["config.toml", "keep_deleted", "30d"]),
        ("sampling = 3", ["config.toml", "sampling", "got int"]),
        ("model = ", ["config.toml", "not valid TOML"]),
    ],
)
def test_a_wrong_file_is_reported_with_file_and_field(paths: Paths, text: str, words: list[str]) -> None:
    write(paths, text)
    with pytest.raises(VlmtuiError) as caught:
        load_settings(paths, {})
    assert caught.value.exit_code == 2
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_a_wrong_variable_is_named(paths: Paths) -> None:
    with pytest.raises(VlmtuiError, match=r"VLMTUI_SEED: sampling\.seed: expected"):
        load_settings(paths, {"VLMTUI_SEED": "one"})


def test_a_binary_file_is_reported(paths: Paths) -> None:
    config_file(paths).write_bytes(b"\xff\xfe\x00")
    with pytest.raises(VlmtuiError, match="not valid TOML"):
        load_settings(paths, {})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5m", 300), ("90s", 90), ("1h30m", 5400), ("0", 0), ("2.5", 2.5), ("forever", None), (" 1H ", 3600)],
)
def test_durations(text: str, seconds: float | None) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "5x", "-5", "5m3", "m", "nan", "inf"])
def test_invalid_durations_are_refused(text: str) -> None:
    with pytest.raises(VlmtuiError, match="not a duration"):
        parse_duration(text)


def test_durations_for_people() -> None:
    assert [describe_duration(seconds) for seconds in (300, 5400, 1, 0, 3661)] == [
        "5 minutes",
        "1 hour 30 minutes",
        "1 second",
        "0 seconds",
        "1 hour 1 minute 1 second",
    ]


def test_servers_have_names(paths: Paths) -> None:
    write(paths, '[engines.box]\nurl = "http://box:8000"\napi_key_env = "BOX"\nheaders = { X-Team = "env:TEAM" }\n')
    box = load_settings(paths, {}).engines["box"]
    assert box.arguments() == {"url": "http://box:8000", "api_key_env": "BOX", "headers": {"X-Team": "env:TEAM"}}


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('[engines.box]\nurl = "http://b"\napi_key = "s3cret"', "Don't write the key here"),
        ('[engines.box]\nurl = "http://b"\nheaders = { X = "s3cret" }', 'X = "env:NAME"'),
        ('[engines.box]\nurl = "http://b"\napi_key_env = "A"\napi_key_file = "b"', "both api_key_env and api_key_file"),
        ('[engines."the box"]\nurl = "http://b"', "can't be the name of an engine"),
        ("[engines.box]\n", "url"),
        ('engines = "box"', "engines"),
    ],
)
def test_an_invalid_server_is_reported_without_its_key(paths: Paths, table: str, said: str) -> None:
    write(paths, table)
    with pytest.raises(VlmtuiError) as caught:
        load_settings(paths, {})
    assert said in str(caught.value)
    assert "s3cret" not in str(caught.value) + caught.value.detail
