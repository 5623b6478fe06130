"""Whatever the bytes: the right records, or one sentence with the file; never another exception."""

import copy
import gzip
import json
import lzma
import tempfile
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings, strategies as st

from liebig.base.errors import DataError
from liebig.base.records import Document, Hit, Passage
from liebig.collection.writer import CollectionWriter
from liebig.formats import detect, formats
from liebig.formats.items import Options

SAMPLES = {
    name: next(iter(format.sample.items())) for name, format in formats().items() if len(format.sample) == 1
}
QUICK = settings(max_examples=15, suppress_health_check=list(HealthCheck))
NASTY = [
    b"\0", b"\xef\xbb\xbf", b"\xff\xfe", b"\r\n", b"\r", b"\n", b"\t", b"\t\t", b"\xff", b'"', b"\\", b'"\\ud800"',
    b"\\udfff", b"\xed\xa0\x80", b"[", b"{", b"]", b"}", b",", b":", b"null", b"NaN", b"1e999", b"-1", b"<top>",
    b"</top>", b"\xe2\x80\xa8", b" ", b"  ", b"9" * 5000, b"[" * 3000, b"''", b"'", b"\x1c", b"id", b"__import__('os')",
]  # fmt: skip


def consume(path, name):
    """Read everything and write it into a collection; a DataError is a fair answer, if it names the file."""
    problem = None
    try:
        with tempfile.TemporaryDirectory() as folder, CollectionWriter(Path(folder)) as writer:
            for found in detect(path, name):
                for item in found.items(Options()):
                    if not isinstance(item.record, Hit):
                        writer.add(item)
    except DataError as error:
        problem = error
    assert problem is None or ("\n" not in str(problem) and Path(path).name in (problem.file or ""))


@st.composite
def spoiled(draw, text):
    """The bytes of a sample after a few accidents."""
    data = bytearray(text.encode())
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        accident = draw(st.sampled_from(["insert", "cut", "drop", "repeat", "flip"]))
        if accident == "insert":
            data[at:at] = draw(st.sampled_from(NASTY))
        elif accident == "cut":
            del data[at:]
        elif accident == "drop":
            del data[at : at + draw(st.integers(1, 20))]
        elif accident == "repeat":
            data += data[at:]
        elif at < len(data):
            data[at] ^= 1 << draw(st.integers(0, 7))
    return bytes(data)


@pytest.mark.parametrize("given_name", [True, False], ids=["named", "told"])
@pytest.mark.parametrize("name", SAMPLES)
@given(data=st.data())
@QUICK
def test_a_spoiled_file_gives_records_or_a_sentence(name, given_name, data):
    file, text = SAMPLES[name]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / file
        path.write_bytes(data.draw(spoiled(text)))
        consume(path, name if given_name else None)


@pytest.mark.parametrize("name", SAMPLES)
@given(data=st.binary(max_size=200))
@QUICK
def test_random_bytes_give_records_or_a_sentence(name, data):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / SAMPLES[name][0]
        path.write_bytes(data)
        consume(path, name)
        consume(path, None)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
ROWS = {
    name: text for name, (_, text) in SAMPLES.items() if text.lstrip()[0] in "[{" and not name.startswith("<")
}


def places(value, path=()):
    """Every place in a JSON value."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in inner:
        yield from places(child, (*path, key))


@pytest.mark.parametrize("name", ROWS)
@given(data=st.data())
@QUICK
def test_any_value_in_any_field_gives_records_or_a_sentence(name, data):
    row = json.loads(ROWS[name].split("\n")[0] if name not in ("dpr-train", "dpr-results") else ROWS[name])
    place = data.draw(st.sampled_from(sorted((p for p in places(row) if p), key=str)))
    spoilt = copy.deepcopy(row)
    target = spoilt
    for key in place[:-1]:
        target = target[key]
    target[place[-1]] = data.draw(values)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / SAMPLES[name][0]
        path.write_text(json.dumps(spoilt) + "\n")
        consume(path, name)
        consume(path, None)


PACKERS = {
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor(write_checksum=True).compress,
}


@pytest.mark.parametrize("suffix", PACKERS)
def test_a_packed_file_cut_anywhere_is_refused(tmp_path, suffix):
    whole = PACKERS[suffix](SAMPLES["msmarco-passages"][1].encode() * 3)
    path = tmp_path / f"collection.tsv{suffix}"
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        with pytest.raises(DataError):
            [item for found in detect(path, "msmarco-passages") for item in found.items(Options())] or _empty(
                cut, path
            )


def _empty(cut, path):
    """Nothing at all is an empty file, which only the look at it refuses."""
    assert cut == 0
    detect(path)


@pytest.mark.parametrize("suffix", PACKERS)
def test_a_packed_file_with_a_flipped_bit_is_never_another_exception(tmp_path, suffix):
    whole = PACKERS[suffix](SAMPLES["passages"][1].encode() * 3)
    path = tmp_path / f"corpus.jsonl{suffix}"
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        consume(path, "passages")


LONG = "word " * (2 << 20)


@pytest.mark.parametrize(
    ("name", "file", "line"),
    [
        ("passages", "corpus.jsonl", json.dumps({"_id": "1", "title": "", "text": LONG})),
        ("msmarco-passages", "collection.tsv", f"1\t{LONG}"),
        ("dpr-passages", "psgs.tsv", f"id\ttext\ttitle\n1\t{LONG}\t"),
        ("lines", "x.txt", LONG),
    ],
)
def test_a_line_of_ten_megabytes_is_a_line(tmp_path, name, file, line):
    (tmp_path / file).write_text(line + "\n")
    [record] = [item.record for found in detect(tmp_path / file, name) for item in found.items(Options())]
    assert isinstance(record, Document | Passage)
    assert record.text == LONG


def test_an_endless_line_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("liebig.formats.rows.MAX_LINE", 1000)
    (tmp_path / "x.tsv").write_text("1\t" + "x" * 2000)
    with pytest.raises(DataError, match="line 1: the line is longer than"):
        list(detect(tmp_path / "x.tsv", "msmarco-passages")[0].items(Options()))
