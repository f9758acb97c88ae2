"""The settings' file, the keys of one's own, and what is said about mistakes in either."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpdeck.cli.app import run
from warpdeck.core.errors import UsageError
from warpdeck.tui import settings
from warpdeck.tui.keys import keymap, registry


def written(home: Path, text: str) -> Path:
    file = home / "config.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_the_file(isolated_home: Path) -> None:
    assert settings.load() == settings.Settings()
    assert settings.config_file() == isolated_home / "config.toml"
    written(
        isolated_home,
        'theme = "Color_Blind"\nreadonly = true\nmouse = false\n[keys]\n"run.pause" = "f2"\nrun.stop = "X"\n',
    )
    found = settings.load()
    assert (found.theme, found.readonly, found.mouse) == ("colour-blind", True, False)
    assert found.keys == {"run.pause": "f2", "run.stop": "X"} and not found.problems


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('theme = "ligth"', "did you mean light?"),
        ("theme = 3", "quotes"),
        ("themes = 1", "did you mean theme?"),
        ('readonly = "yes"', "true or false"),
        ("keys = 1", "[keys]"),
        ('[keys]\n"run.pause" = 5', "quotes"),
        ('[keys]\n"run.pause" = " "', "quotes"),
        ("theme = ", "nothing of it is used"),
        ("\udcff", "nothing of it is used"),
    ],
)
def test_mistakes_are_told_and_the_rest_is_used(text: str, words: str, isolated_home: Path) -> None:
    (isolated_home / "config.toml").write_bytes(f"mouse = false\n{text}\n".encode(errors="surrogateescape"))
    found = settings.load()
    (problem,) = found.problems
    assert words in problem and str(isolated_home / "config.toml") in problem and "\n" not in problem
    assert found.mouse is ("nothing of it" in words)
    assert found.theme == "dark" and not found.readonly


def test_an_unreadable_file_is_told(isolated_home: Path) -> None:
    (isolated_home / "config.toml").mkdir()
    (problem,) = settings.load().problems
    assert "Is a directory" in problem


@given(st.text(max_size=80))
def test_no_file_ends_it(text: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "config.toml"
        file.write_bytes(text.encode("utf-8", "surrogatepass"))
        found = settings.load(file)
    assert found.theme in settings.THEMES and all("\n" not in p for p in found.problems)


@pytest.mark.parametrize(
    "before",
    [
        "",
        "# mine\nmouse = false\n",
        '# mine\ntheme = "light"  # at night\nmouse = false\n\n[keys]\n"run.pause" = "f2"\n',
        '[keys]\n"run.pause" = "f2"\n',
        'mouse = true\n\n[keys]\ntheme = "t"\n',
    ],
)
def test_a_chosen_theme_is_written_and_nothing_else(before: str, tmp_path: Path) -> None:
    file = tmp_path / "deep" / "config.toml"
    if before:
        file.parent.mkdir()
        file.write_text(before)
    settings.save_theme("high-contrast", file)
    text = file.read_text()
    was, now = tomllib.loads(before), tomllib.loads(text)
    assert now == {**was, "theme": "high-contrast"}
    assert ("# mine" in text) is ("# mine" in before)
    settings.save_theme("dark", file)
    assert tomllib.loads(file.read_text()) == {**was, "theme": "dark"}
    assert [p.name for p in file.parent.iterdir()] == ["config.toml"]


def test_a_damaged_file_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("theme = ")
    with pytest.raises(ValueError, match="Invalid"):
        settings.save_theme("dark", file)
    assert file.read_text() == "theme = "
    file.write_text('note = """\ntheme = "x"\n"""\n')
    with pytest.raises(ValueError, match="by hand"):
        settings.save_theme("dark", file)


def test_every_theme_has_a_name_and_none_other() -> None:
    assert settings.theme_name(" High_Contrast ", "--theme") == "high-contrast"
    with pytest.raises(UsageError, match="did you mean dark"):
        settings.theme_name("drak", "--theme")


# Keys


def test_every_key_has_an_id_words_and_a_place() -> None:
    known = registry()
    assert len(known) > 80
    for key in known.values():
        assert key.words and key.words[0].isupper(), key
        assert "." in key.id and key.keys
    assert known["run.stop"].changes == "stop runs"
    assert known["screen.zoom"].changes is None


def test_keys_of_ones_own() -> None:
    keys, problems = keymap(
        {"run.pause": "f2,?", "*.help": "f1", "table.down": "ctrl+n,down", "run.stop": "X"}
    )
    assert not problems  # "?" is free once help has gone to f1
    assert keys["run.pause"] == "f2,question_mark"
    assert keys["run.help"] == keys["counters.help"] == "f1"
    assert keys["table.down"] == "ctrl+n,down" and keys["run.stop"] == "X"
    assert keymap({}) == ({}, [])


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"run.puase": "f2"}, "near: run.pause"),
        ({"nothing like it at all": "f2"}, "config keys"),
        ({"run.pause": "spcae"}, "near: space"),
        ({"run.pause": "crtl+x"}, "near: ctrl"),
        ({"run.pause": "ctrl+"}, "no key"),
        ({"run.pause": ", ,"}, "name a key"),
        ({"run.pause": "q"}, "run.quit"),  # the same screen
        ({"run.pause": "j"}, "table.down"),  # a pane of that screen
        ({"table.down": "n"}, "has that key there"),  # a screen with that pane
        ({"run.pause": "ctrl+q"}, "app.quit"),  # everywhere
        ({"run.pause": "f2", "run.stop": "f2"}, "run.stop"),
    ],
)
def test_what_is_wrong_is_told_and_not_applied(asked: dict[str, str], words: str) -> None:
    keys, problems = keymap(asked)
    assert len(problems) == 1 and words in problems[0], problems
    assert len(keys) == len(asked) - 1


def test_keys_may_be_exchanged() -> None:
    keys, problems = keymap({"run.quit": "x", "run.stop": "q"})
    assert keys == {"run.quit": "x", "run.stop": "q"} and not problems


def test_the_keys_of_the_code_are_no_mistakes() -> None:
    """Each key as it is can be asked for: defaults are never told to clash."""
    for key in registry().values():
        assert keymap({key.id: ",".join(key.keys)})[1] == [], key


@given(st.dictionaries(st.sampled_from(sorted(registry())), st.text(max_size=8), max_size=4))
def test_nothing_asked_for_ends_it(asked: dict[str, str]) -> None:
    keys, problems = keymap(asked)
    assert len(keys) + len(problems) == len(asked)


# The command line


def test_config_tells_settings_and_mistakes(isolated_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "path", "settings"]) == 0
    assert capsys.readouterr().out == f"{isolated_home / 'config.toml'}\n"
    written(isolated_home, 'theme = "light"\n[keys]\n"run.pause" = "f2"\n')
    assert run(["config", "show"]) == 0
    shown = capsys.readouterr()
    assert "light" in shown.out and "keys.run.pause  f2" in shown.out and not shown.err
    written(isolated_home, 'theme = "ligth"\n[keys]\n"run.puase" = "f2"\n')
    assert run(["config", "show", "--json"]) == 2
    shown = capsys.readouterr()
    assert shown.err.count("\n") == 2 and "did you mean light?" in shown.err and "run.pause" in shown.err
    assert len(json.loads(shown.out)["settings"]["problems"]) == 2
    assert run(["config", "keys", "--json"]) == 0
    keys = {row["id"]: row for row in json.loads(capsys.readouterr().out)["keys"]}
    assert keys["run.pause"]["keys"] == ["space"] and keys["run.stop"]["changes"] == "stop runs"
    assert run(["config", "keys"]) == 0
    assert "run.pause" in capsys.readouterr().out
    assert run(["--theme", "drak", "config", "path"]) == 2
    assert "did you mean dark?" in capsys.readouterr().err
