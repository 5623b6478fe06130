"""The standard library's documentation is read from its source, and nothing of it is run."""

import pytest

from liebig.base.errors import DataError
from liebig.formats import detect, stdlib
from liebig.formats.items import Options


def documents(name):
    [found] = detect(name)
    return {item.record.id: item.record for item in found.items(Options())}


def test_functions_classes_methods_and_modules_have_dotted_ids():
    found = documents("stdlib:heapq,json,collections")
    assert {
        "heapq",
        "heapq.merge",
        "json.dumps",
        "json.decoder.JSONDecoder.decode",
        "collections.deque",
    } <= set(found)
    assert "Merge multiple sorted inputs" in found["heapq.merge"].text
    assert found["heapq.merge"].metadata["signature"] == "merge(*iterables, key=None, reverse=False)"


def test_only_what_was_named_is_read():
    assert {name.split(".")[0] for name in documents("stdlib:heapq")} == {"heapq"}


def test_builtins_and_modules_in_c_are_asked():
    assert "ommon" in documents("stdlib:math")["math.gcd"].text
    assert {"len", "str.join"} <= set(documents("stdlib:builtins"))


def test_the_whole_library_is_thousands_of_documents_without_private_names(whole_library):
    names = [name for name, _, has_sections in whole_library["texts"] if has_sections]
    assert 5000 < len(names) == len(set(names)) < 12_000
    assert not [name for name in names if any(part.startswith("_") for part in name.split("."))]


def test_modules_with_side_effects_are_not_imported(whole_library):
    assert not {"antigravity", "this", "tkinter", "turtle", "webbrowser", "idlelib"} & set(
        whole_library["modules"]
    )


def test_a_module_that_does_not_exist_is_refused():
    with pytest.raises(DataError, match="no module 'nowhere'"):
        documents("stdlib:nowhere")


def test_a_file_that_does_not_parse_is_left_out(tmp_path):
    path = tmp_path / "bad.py"
    path.write_text("def broken(:\n")
    assert list(stdlib.from_source("bad", path)) == []
