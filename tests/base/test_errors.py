"""Errors that a user can act on: the command that installs what is missing works for how Liebig was installed."""

import importlib.metadata
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from liebig.base import errors
from liebig.base.errors import MissingDependency, install_command

ROOT = Path(__file__).parents[2]


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """A package in site-packages, with what pip says about where it came from."""

    def install(said):
        monkeypatch.setattr(errors, "__file__", str(tmp_path / "lib/site-packages/liebig/base/errors.py"))
        text = None if said is None else json.dumps(said)
        stand_in = SimpleNamespace(read_text=lambda name: text)
        monkeypatch.setattr(importlib.metadata, "distribution", lambda name: stand_in)

    return install


def test_a_clone_is_installed_from_its_folder():
    assert install_command("train") == f"pip install -e '{ROOT}[train]'"
    assert f"To fix it: pip install -e '{ROOT}[mcp]'." in str(MissingDependency("mcp", "mcp", "mcp"))


def test_a_wheel_or_a_clone_that_pip_names_is_named(installed, tmp_path):
    wheel = tmp_path / "my wheels" / "liebig-1.whl"
    wheel.parent.mkdir()
    wheel.touch()
    installed({"url": wheel.as_uri(), "archive_info": {}})
    assert install_command("train") == f"pip install '{wheel}[train]'"
    installed({"url": wheel.parent.as_uri(), "dir_info": {}})
    assert install_command("train,mcp") == f"pip install '{wheel.parent}[train,mcp]'"
    installed({"url": "https://example.org/liebig", "vcs_info": {"vcs": "git", "commit_id": "1"}})
    assert install_command("train") == "pip install 'liebig[train] @ git+https://example.org/liebig'"


@pytest.mark.parametrize("said", [None, {}, {"url": "file:///gone/liebig-1.whl"}])
def test_without_a_place_to_install_from_the_repository_is_named(installed, said):
    installed(said)
    assert install_command("train") == "pip install '.[train]' in a clone of its repository"


def test_no_page_and_no_message_installs_by_a_name_that_anybody_could_register():
    pages = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "Dockerfile", *(ROOT / "docs").rglob("*.md")]
    pages += [*(ROOT / "docs").glob("*.ipynb"), *(ROOT / "src").rglob("*.py")]
    name = re.compile(r"pip install ['\"]?liebig\b(?!\[\{extra\}\] @)")
    assert [str(page) for page in pages if name.search(page.read_text(encoding="utf-8"))] == []
