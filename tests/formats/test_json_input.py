"""One large JSON file read an element at a time equals json.load; what is wrong is said with its line."""

import json
import tempfile
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from liebig.base.errors import DataError
from liebig.formats import rows as json_input
from liebig.formats.items import Where
from liebig.formats.on_disk import source_of

QUICK = settings(max_examples=50, suppress_health_check=list(HealthCheck))
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=12,
)


def elements(data, chunk):
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(json_input, "CHUNK", chunk):
        path = Path(folder) / "x.json"
        path.write_bytes(data)
        return list(json_input.elements(source_of(path)))


@given(st.lists(values, max_size=5), st.integers(1, 40), st.sampled_from([None, 0, 3]), st.booleans())
@QUICK
def test_the_elements_of_an_array_are_those_of_json_load(value, chunk, indent, ascii_only):
    data = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode()
    assert [found for _, _, found in elements(data, chunk)] == value


@given(st.dictionaries(text, values, max_size=5), st.integers(1, 40))
@QUICK
def test_the_members_of_an_object_are_those_of_json_load(value, chunk):
    assert {key: found for _, key, found in elements(json.dumps(value).encode(), chunk)} == value


@given(st.dictionaries(text, values | st.integers(-(1 << 70), 1 << 70), max_size=4) | values, st.booleans())
@example({"_id": 1 << 64}, False)
@example({"_id": -(1 << 63) - 1, "text": ["", 1 << 80]}, False)
@example({"a": float("inf"), "b": -0.0}, False)
@QUICK
def test_the_value_of_a_line_is_that_of_json_loads(value, ascii_only):
    line = json.dumps(value, ensure_ascii=ascii_only)
    assert repr(json_input.parse(line, Where("x.jsonl", 1))) == repr(json.loads(line))


@given(st.lists(values, min_size=1, max_size=3), st.data(), st.integers(1, 40))
@QUICK
def test_an_array_cut_anywhere_is_refused(value, data, chunk):
    whole = json.dumps(value).encode()
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(DataError):
        elements(whole[:cut], chunk)


def test_lines_of_elements_are_those_of_the_file():
    found = elements(b'[\n1,\n\n{"a":\n2}\n, 3]', 4)
    assert [where.line for where, _, _ in found] == [2, 4, 6]


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b'[{"a": 1}, {"b" 2}]', "line 1: this is not valid JSON"),
        (b"[1 2]", "where a comma or ] should stand"),
        (b"[1,\n2] 3", "line 2: there is more after the end"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[" + b"9" * 5000 + b"]", "line 1: this is not valid JSON"),
        (b'["\\ud800"]', r"lone surrogate U\+D800"),
        (b'{"\\udc00": 1}', r"lone surrogate U\+DC00"),
        (b'["\xff"]', "not UTF-8"),
        (b"7", "an array or object"),
        (b"", "ends early"),
    ],
)
def test_what_is_wrong_is_said(data, match):
    for chunk in (3, 1 << 20):
        with pytest.raises(DataError, match=match):
            elements(data, chunk)


def test_a_broken_element_is_refused_without_reading_the_rest():
    reads = []

    class Endless:
        def read(self, size):
            reads.append(size)
            return (b'[{"a" 1}, ' if len(reads) == 1 else b"") + b'{"a": 1}, ' * 10

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    source = mock.Mock(label="endless", open=lambda: Endless())
    with pytest.raises(DataError):
        list(json_input.elements(source))
    assert len(reads) < 5


def test_pairs_of_surrogates_are_one_character_and_no_error():
    assert json_input.parse('"\\ud83d\\ude00"', Where("x")) == "😀"


@pytest.mark.parametrize("line", ['"\\ud83d"', '{"a": ["\\ude00"]}', '{"\\ud83d": 1}'])
def test_a_lone_surrogate_on_a_line_is_refused(line):
    with pytest.raises(DataError, match="x, line 3: a text contains half of a character"):
        json_input.parse(line, Where("x", 3))
