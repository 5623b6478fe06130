"""Tables of parts that other packages extend by entry points."""

from importlib.metadata import EntryPoint

import pytest

from liebig.base import extensions
from liebig.base.errors import RecipeError
from liebig.base.extensions import extended, load


@pytest.fixture
def entries(monkeypatch):
    """Installs entry points: `entries({"name": "module:Class"})`."""

    def install(values):
        points = [EntryPoint(name, value, "group") for name, value in values.items()]
        monkeypatch.setattr(extensions, "entry_points", lambda group: points)

    return install


def test_entry_points_are_added_and_never_replace(entries):
    entries({"new": "json:JSONDecoder", "old": "json:JSONEncoder"})
    table = extended({"old": "pathlib:Path"}, "group")
    assert table == {"old": "pathlib:Path", "new": "json:JSONDecoder"}
    assert load(table, "new").__name__ == "JSONDecoder"


@pytest.mark.parametrize("value", ["no_such_module:Thing", "json:NoSuchThing"])
def test_a_part_that_cannot_be_imported_is_one_sentence(value):
    with pytest.raises(RecipeError, match="'x' cannot be loaded from"):
        load({"x": value}, "x")
