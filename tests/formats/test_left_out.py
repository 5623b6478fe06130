"""What nobody means is left out of a folder, with a reason; patterns and ignore files decide before the usual rules."""

import shutil
import zipfile

import pytest

from liebig.base.errors import LiebigError
from liebig.formats import detect
from liebig.formats.ledger import Ledger
from liebig.formats.left_out import LARGEST, LeaveOut, is_left_out
from liebig.formats.on_disk import source_of

FILES = [
    "a.md", "b.txt", "notes/c.md", "notes/old/d.md", ".hidden.md", ".git/HEAD.txt", "~$a.docx", "a.md~",
    "node_modules/left/readme.md", "src/__pycache__/x.txt", "env/pyvenv.cfg", "env/lib/e.md", "tmp/CACHEDIR.TAG",
    "tmp/f.md", "jquery.min.js", "app.js.map", "Thumbs.db", "package-lock.json",
]  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    for name in FILES:
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_text("Some text.\n\nMore text.\n")
    return tmp_path / "in"


def read(folder, **rules):
    return {file.subpath for file in source_of(folder, LeaveOut(**rules)).files()}


def reasons(folder, **rules):
    ledger = Ledger(strict=False)
    detect(folder, None, ledger, LeaveOut(**rules))
    assert set(ledger.ignored) <= set(ledger.seen)
    return {label.removeprefix(f"{folder}/"): reason for label, reason in ledger.ignored.items()}


def test_the_usual_clutter_is_left_out_with_its_reason(folder):
    assert read(folder) == {"a.md", "b.txt", "notes/c.md", "notes/old/d.md"}
    assert reasons(folder) == {
        ".hidden.md": "hidden",
        ".git/": "hidden",
        "~$a.docx": "a lock file of Office",
        "a.md~": "left by a program",
        "Thumbs.db": "left by a program",
        "package-lock.json": "versions and hashes of dependencies",
        "node_modules/": "dependencies",
        "src/__pycache__/": "a cache",
        "tmp/": "a cache",
        "env/": "a virtual environment",
        "jquery.min.js": "minified code",
        "app.js.map": "minified code",
    }


def test_patterns_leave_out_and_take_back(folder):
    assert read(folder, exclude=("notes/",)) == {"a.md", "b.txt"}
    assert read(folder, exclude=("old", "*.txt")) == {"a.md", "notes/c.md"}
    assert read(folder, exclude=("!.hidden.md", "/a.md")) == {
        "b.txt", "notes/c.md", "notes/old/d.md", ".hidden.md",
    }  # fmt: skip
    assert reasons(folder, exclude=("notes/",))["notes/"] == "excluded"


def test_only_what_is_included_is_read(folder):
    assert read(folder, include=("*.md",)) == {"a.md", "notes/c.md", "notes/old/d.md"}
    assert read(folder, include=("notes/**",), exclude=("old/",)) == {"notes/c.md"}
    assert reasons(folder, include=("*.md",))["b.txt"] == "not included"


@pytest.mark.parametrize("name", [".gitignore", ".liebigignore"])
def test_ignore_files_hold_below_their_folder(folder, name):
    (folder / "notes" / name).write_text("# what is old\nold/\n!/.kept.md\n")
    (folder / "notes" / ".kept.md").write_text("Kept.\n")
    (folder / "old.d").mkdir()
    assert read(folder) == {"a.md", "b.txt", "notes/c.md", "notes/.kept.md"}
    assert reasons(folder)["notes/old/"] == f"listed in {name}"
    assert "notes/old/d.md" in read(folder, ignore_files=False)


def test_a_nearer_ignore_file_and_the_user_decide_last(folder):
    (folder / ".gitignore").write_text("*.md\n")
    (folder / "notes" / ".gitignore").write_text("!c.md\n")
    assert read(folder) == {"b.txt", "notes/c.md"}
    assert read(folder, exclude=("!a.md",)) == {"a.md", "b.txt", "notes/c.md"}


def test_what_was_named_is_read_whatever_its_name(folder):
    assert read(folder / ".git") == {"HEAD.txt"}
    assert [file.name for file in source_of(folder / ".hidden.md").files()] == [".hidden.md"]


RULES = [
    {},
    {"exclude": ("notes/",)},
    {"exclude": ("/notes/c.md", "!.hidden.md")},
    {"include": ("*.md",)},
    {"ignore_files": False},
]


@pytest.mark.parametrize("kind", ["zip", "gztar"])
@pytest.mark.parametrize("rules", RULES)
def test_an_archive_leaves_out_what_its_folder_does(folder, tmp_path, kind, rules):
    (folder / "notes" / ".gitignore").write_text("old/\n")
    archive = shutil.make_archive(str(tmp_path / "packed"), kind, tmp_path, "in")
    assert read(archive, **rules) == read(folder, **rules)
    inside = {label.removeprefix(f"{archive}!in/"): why for label, why in reasons(archive, **rules).items()}
    assert inside == reasons(folder, **rules)


def test_rules_hold_in_archives_of_a_folder_and_in_those_in_them(folder, tmp_path):
    with zipfile.ZipFile(tmp_path / "inner.zip", "w") as inner:
        for name in ("in/a.md", "in/b.txt", "__MACOSX/in/._a.md"):
            inner.writestr(name, "Text.")
    with zipfile.ZipFile(folder / "outer.zip", "w") as outer:
        for name in ("c.md", "d.txt", ".gitignore", "__MACOSX/._inner.zip"):
            outer.writestr(name, "/inner.zip/b.txt\n")
        outer.write(tmp_path / "inner.zip", "inner.zip")
    assert {path for path in read(folder, exclude=("outer.zip/d.txt",)) if "zip" in path} == {
        "outer.zip/c.md",
        "outer.zip/inner.zip/a.md",
    }
    listed = {path: why for path, why in reasons(folder).items() if "zip" in path}
    assert listed == {
        "outer.zip!.gitignore": "hidden",
        "outer.zip!inner.zip/b.txt": "listed in .gitignore",
        "outer.zip!inner.zip/__MACOSX/": "a cache",
        "outer.zip!__MACOSX/": "a cache",
    }


def test_a_pattern_that_cannot_be_read_is_one_sentence(folder):
    with pytest.raises(LiebigError, match="--exclude has a pattern that cannot be read"):
        read(folder, exclude=("!",))
    (folder / ".gitignore").write_text("!\n")
    ledger = Ledger(strict=False)
    detect(folder, None, ledger)
    [error] = ledger.errors
    assert "pattern that cannot be read" in str(error)
    assert str(error.file).endswith(".gitignore")


@pytest.mark.parametrize("kind", ["folder", "zip"])
def test_an_ignore_file_that_is_too_large_is_listed_and_not_used(folder, tmp_path, kind):
    before = read(folder)
    (folder / ".gitignore").write_text("b.txt\n" + "#\n" * (LARGEST // 2))
    place = (
        folder if kind == "folder" else shutil.make_archive(str(tmp_path / "packed"), kind, tmp_path, "in")
    )
    ledger = Ledger(strict=False)
    detect(place, None, ledger)
    [error] = ledger.errors
    assert error.what == "larger than 1 MiB, so its patterns are not used"
    assert str(error.file).endswith("in/.gitignore")
    assert read(place) == before


def test_an_output_folder_may_lie_inside_if_it_is_left_out(folder):
    assert is_left_out(folder / ".liebig" / "work", folder, LeaveOut())
    assert is_left_out(folder / "out", folder, LeaveOut(exclude=("out/",)))
    assert not is_left_out(folder / "out", folder, LeaveOut())


@pytest.mark.parametrize("text", ["!\n", "#\n" * LARGEST], ids=["a wrong pattern", "too large"])
def test_an_ignore_file_that_is_not_used_does_not_say_where_output_may_lie(folder, text):
    (folder / ".gitignore").write_text(text)
    assert not is_left_out(folder / "out", folder, LeaveOut())
    assert is_left_out(folder / "out", folder, LeaveOut(exclude=("out/",)))
