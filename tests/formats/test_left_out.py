"""What nobody means is left out of a folder, with a reason; patterns and ignore files decide before the usual rules."""

import zipfile

import pytest

from liebig.base.errors import LiebigError
from liebig.formats import detect
from liebig.formats.ledger import Ledger
from liebig.formats.left_out import LeaveOut, is_left_out
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


def test_an_archive_leaves_out_the_same_names(folder, tmp_path):
    with zipfile.ZipFile(tmp_path / "in.zip", "w") as archive:
        for name in (
            "a.md",
            "notes/c.md",
            ".git/HEAD",
            "node_modules/x.md",
            "src/__pycache__/x.txt",
            "~$a.docx",
        ):
            archive.writestr(name, "Text.")
    assert read(tmp_path / "in.zip") == {"a.md", "notes/c.md"}


def test_a_pattern_that_cannot_be_read_is_one_sentence(folder):
    with pytest.raises(LiebigError, match="--exclude has a pattern that cannot be read"):
        read(folder, exclude=("!",))
    (folder / ".gitignore").write_text("!\n")
    ledger = Ledger(strict=False)
    detect(folder, None, ledger)
    [error] = ledger.errors
    assert "pattern that cannot be read" in str(error)
    assert str(error.file).endswith(".gitignore")


def test_an_output_folder_may_lie_inside_if_it_is_left_out(folder):
    assert is_left_out(folder / ".liebig" / "work", folder, LeaveOut())
    assert is_left_out(folder / "out", folder, LeaveOut(exclude=("out/",)))
    assert not is_left_out(folder / "out", folder, LeaveOut())
