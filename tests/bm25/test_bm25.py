"""BM25: equal to bm25s on the same text, and the same however the index came about."""

import errno
import json
import math
import os
import subprocess
import sys
import unicodedata

import numpy as np
import pytest

from liebig.base import npy, workspace
from liebig.base.errors import CorruptError, DataError, RecipeError
from liebig.base.machine import MACOS, WINDOWS
from liebig.base.records import Passage
from liebig.base.workspace import Folder
from liebig.bm25 import kernels, search
from liebig.bm25.analysis import Analyzer, _any_word, language_name, stop_words, untagged
from liebig.bm25.search import BM25, BM25Settings
from liebig.bm25.update import settings_of, write_index
from liebig.search.explain import bm25_score
from liebig.stages.bm25 import BM25Config, run
from tests.worlds.crafted import rewrite_manifest

WORDS = "boundary layer flow pressure wing heat transfer shock wave body theory solution speed surface jet"
WORDS = WORDS.split(" ")


def texts(n, seed=0):
    """Passages of words with a few frequent ones, some of them equal."""
    rng = np.random.default_rng(seed)
    chosen = [rng.geometric(0.15, rng.integers(3, 30)) % len(WORDS) for _ in range(n)]
    return [" ".join(WORDS[i] for i in row) for row in chosen]


def passages(n, seed=0):
    rows = texts(n, seed)
    return [Passage(f"p{i}", text, WORDS[i % len(WORDS)]) for i, text in enumerate(rows)]


DEFAULT = BM25Settings()


def build(path, rows, settings=DEFAULT, **options):
    with workspace.stage(path, kind="bm25", recipe={}, inputs={}, resume=False) as folder:
        write_index(folder, rows, settings, **options)
    return BM25.open(path)


def found(index, queries, k=50):
    """Ids and scores, to the last digit."""
    ranked = index.search(queries, k)
    return [[(index.id(number), score) for number, score in ranked.row(q)] for q in range(len(queries))]


QUERIES = ["flow of heat", "shock wave wave theory", "pressure", "unknownword", "", "jet speed surface body"]


def test_scores_equal_bm25s_to_the_last_digit(tmp_path):
    import bm25s
    import Stemmer

    rows = passages(300)
    ranked = build(tmp_path / "ix", rows).search(QUERIES, 300)
    stemmer = Stemmer.Stemmer("english")
    reference = bm25s.BM25(method="lucene", k1=0.9, b=0.4)
    both = [f"{p.title} {p.text}" for p in rows]
    reference.index(
        bm25s.tokenize(both, stopwords="en", stemmer=stemmer, show_progress=False), show_progress=False
    )
    for q, query in enumerate(QUERIES):
        terms = bm25s.tokenize(
            [query], stopwords="en", stemmer=stemmer, show_progress=False, return_ids=False
        )[0]
        scores = reference.get_scores(terms) if terms else np.zeros(300, np.float32)
        order = sorted(np.flatnonzero(scores > 0), key=lambda i: (-scores[i], i))
        assert ranked.row(q) == [(i, float(scores[i])) for i in order]


def test_adding_equals_rebuilding_to_the_last_digit(tmp_path):
    rows = passages(400)
    settings = BM25Settings(title_weight=2.3, body_weight=0.7)
    whole = build(tmp_path / "whole", rows, settings)
    build(tmp_path / "a", rows[:150], settings)
    build(tmp_path / "b", rows[150:260], settings, base=tmp_path / "a")
    grown = build(tmp_path / "c", rows[260:], settings, base=tmp_path / "b")
    assert len(grown.segments) == 3
    assert found(grown, QUERIES) == found(whole, QUERIES)


@pytest.mark.parametrize("compact", [False, True])
def test_deleting_and_replacing_equal_a_rebuild_of_what_is_left(tmp_path, compact):
    rows = passages(300)
    new = [Passage("p7", "heat heat shock", "wing"), Passage("extra", "flow of jet", "")]
    left = [p for p in rows if p.id not in ("p3", "p4", "p7")] + new
    build(tmp_path / "a", rows, words=1500)
    changed = build(tmp_path / "b", new, base=tmp_path / "a", delete=["p3", "p4"], compact=compact)
    assert (len(changed.segments) == 1) == compact
    assert len(changed) == len(left)
    assert found(changed, QUERIES, 300) == found(build(tmp_path / "whole", left), QUERIES, 300)
    assert changed.find("p3") is None
    assert changed.passage(changed.find("p7")).text == "heat heat shock"


def test_a_mask_leaves_the_ranking_of_what_it_lets_through(tmp_path):
    rows = passages(300)
    build(tmp_path / "a", rows[:200])
    index = build(tmp_path / "b", rows[200:], base=tmp_path / "a", delete=["p3", "p250"])
    everything = index.search(QUERIES, 300)
    rng = np.random.default_rng(3)
    for share in (0.0, 0.02, 0.5, 1.0):
        mask = rng.random(300) < share
        for _ in range(2):  # the second time with cached scores
            masked = index.search(QUERIES, 10, mask=mask)
            for q in range(len(QUERIES)):
                assert masked.row(q) == [hit for hit in everything.row(q) if mask[hit[0]]][:10]


def test_an_index_can_be_changed_in_place(tmp_path):
    rows = passages(60)
    build(tmp_path / "ix", rows[:50])
    grown = build(tmp_path / "ix", rows[50:], base=tmp_path / "ix", delete=["p1"])
    assert found(grown, QUERIES) == found(build(tmp_path / "w", [rows[0], *rows[2:]]), QUERIES)


def test_small_segments_equal_one_and_many_are_merged(tmp_path):
    rows = passages(200)
    whole = found(build(tmp_path / "one", rows), QUERIES)
    three = build(tmp_path / "three", rows, words=1200)
    many = build(tmp_path / "many", rows, words=100)
    assert 1 < len(three.segments) <= 8
    assert len(many.segments) == 1
    assert whole == found(three, QUERIES) == found(many, QUERIES)


def test_threads_and_chunks_change_nothing(tmp_path):
    index = build(tmp_path / "ix", passages(200))
    queries = texts(150, seed=3)
    one, two = index.search(queries, 20), index.search(queries, 20, threads=2)
    assert np.array_equal(one.numbers, two.numbers)
    assert np.array_equal(one.scores, two.scores)
    assert np.array_equal(one.numbers[100], index.search([queries[100]], 20).numbers[0])


def test_cached_scores_change_nothing(tmp_path, monkeypatch):
    first = build(tmp_path / "ix", passages(300), words=2000)
    queries = texts(80, seed=4)
    once = [found(BM25.open(tmp_path / "ix", hashes=False), [query], 20)[0] for query in queries[:10]]
    again = [found(first, queries, 20) for _ in range(3)]
    assert again[0][:10] == once
    assert again[0] == again[1] == again[2]
    monkeypatch.setattr(search, "CACHED_SCORES", 200)
    assert found(BM25.open(tmp_path / "ix"), queries * 2, 20)[:80] == again[0]


def test_words_of_clients_are_remembered_up_to_a_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(search, "WORDS", 5)
    index, queries = build(tmp_path / "ix", passages(300), words=2000), texts(80, seed=4)
    expected = found(index, queries, 20)
    found(index, [f"word{n}nobodyhas" for n in range(100)], 20)
    assert found(index, queries, 20) == expected
    assert len(index._table) == 5


@pytest.mark.parametrize("window", [1, 32, 301, 2048])
@pytest.mark.parametrize("k", [5, 40, 600])
def test_windows_change_nothing(tmp_path, monkeypatch, window, k):
    index = build(tmp_path / "ix", passages(500))
    mask = np.random.default_rng(5).random(500) < 0.4
    whole, filtered = index.search(QUERIES, k), index.search(QUERIES, k, mask=mask)
    monkeypatch.setattr(kernels, "WINDOW", window)
    for _ in range(2):  # the second time with cached scores
        for ours, reference in (
            (index.search(QUERIES, k), whole),
            (index.search(QUERIES, k, mask=mask), filtered),
        ):
            assert np.array_equal(ours.numbers, reference.numbers)
            assert np.array_equal(ours.scores, reference.scores)


@pytest.mark.parametrize("title_weight", [1.0, 9.0, 1.5])
def test_tables_change_nothing(tmp_path, monkeypatch, title_weight):
    index = build(tmp_path / "ix", passages(900), BM25Settings(title_weight=title_weight))
    queries = [*QUERIES, *texts(20, seed=8)]
    expected = found(index, queries)
    monkeypatch.setattr(kernels, "WINDOW", 256)
    monkeypatch.setattr(search, "CACHED_SCORES", 3000)  # too few for the postings of all terms
    small = BM25.open(tmp_path / "ix")
    assert [found(small, queries) for _ in range(2)] == [expected] * 2
    kinds = {min(cached, 0) if cached > -2 else "table" for cached in small._table._segments[0].cached}
    assert kinds >= {0, "table"}
    monkeypatch.setattr(search, "MOST_NORMS", 0)
    assert found(BM25.open(tmp_path / "ix"), queries * 2)[: len(queries)] == expected


def test_ties_keep_the_order_of_insertion_at_the_border_too(tmp_path):
    index = build(tmp_path / "ix", [Passage(f"z{i}", "flow", "") for i in range(9, 0, -1)])
    assert [id for id, _ in found(index, ["flow"], 4)[0]] == ["z9", "z8", "z7", "z6"]


def test_k1_and_b_are_chosen_when_searching(tmp_path):
    rows = passages(80)
    build(tmp_path / "a", rows)
    again = BM25.open(tmp_path / "a", k1=1.2, b=0.75)
    assert found(again, QUERIES) == found(build(tmp_path / "b", rows, BM25Settings(k1=1.2, b=0.75)), QUERIES)


def test_whole_title_weights_equal_repeated_titles(tmp_path):
    rows = passages(50)
    repeated = [Passage(p.id, f"{p.title} {p.title} {p.title} {p.text}") for p in rows]
    weighted = build(tmp_path / "a", rows, BM25Settings(title_weight=3))
    assert found(weighted, QUERIES) == found(build(tmp_path / "b", repeated), QUERIES)


@pytest.mark.parametrize(
    "corpus, query, best",
    [
        (["東京都は日本の首都です", "大阪は西日本の都市です", "猫は動物です"], "日本の首都", 0),
        (["東京都は日本の首都です", "大阪は西日本の都市です", "猫は動物です"], "猫", 2),
        (["机器学习是人工智能的分支", "今天天气很好", "深度学习模型"], "人工智能", 0),
        (["กรุงเทพมหานครเป็นเมืองหลวง", "เชียงใหม่อยู่ทางเหนือ"], "เมืองหลวง", 0),
        (["한국어를 배우는 학생", "일본에 간 사람"], "한국어", 0),
        (["हिन्दी भारत की भाषा है", "यह एक किताब है"], "हिन्दी भाषा", 0),
        (["Die Häuser stehen am Fluss", "Der Garten ist grün"], "Haus am Fluss", 0),
    ],
)
def test_other_scripts_find_their_passage(tmp_path, corpus, query, best):
    language = "german" if query.isascii() else "none"
    index = build(tmp_path / "ix", [Passage(str(i), t) for i, t in enumerate(corpus)], BM25Settings(language))
    assert index.id(index.search([query], 3).row(0)[0][0]) == str(best)


def test_stop_words_are_those_of_bm25s_which_is_not_imported():
    from bm25s import stopwords

    assert stop_words("english") == frozenset(stopwords.STOPWORDS_EN)
    assert stop_words("german") == frozenset(stopwords.STOPWORDS_GERMAN)
    assert stop_words("basque") == frozenset()
    script = "import sys; from liebig.bm25.analysis import Analyzer; Analyzer().terms('a fish'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not {"bm25s", "jax"} & set(done.stdout.split())


def test_analysis_folds_width_and_keeps_marks():
    assert Analyzer("none").terms("ﾃｽﾄ") == ["テ", "ス", "ト", "テス", "スト"]
    assert Analyzer("none").terms("हिन्दी") == ["हिन्दी"]


def test_every_combining_mark_belongs_to_a_word():
    marks = "".join(
        c for c in map(chr, range(0x300, sys.maxunicode + 1)) if unicodedata.category(c)[0] == "M"
    )
    assert _any_word().fullmatch(marks)


def test_unknown_language_lists_those_there_are():
    assert language_name("DE") == "german"
    with pytest.raises(RecipeError, match="french"):
        language_name("klingon")


def test_duplicate_ids_are_refused(tmp_path):
    with pytest.raises(DataError, match="'a' occurs twice"):
        build(tmp_path / "ix", [Passage("a", "flow"), Passage("b", "jet"), Passage("a", "wing")])
    with pytest.raises(DataError, match="'a' occurs twice"):
        build(tmp_path / "ix", [Passage("a", "flow jet"), Passage("b", "jet"), Passage("a", "wing")], words=1)


def test_idf_is_lucenes(tmp_path):
    index = build(tmp_path / "ix", [Passage("a", "flow"), Passage("b", "jet")], BM25Settings(k1=0))
    score = index.search(["flow"], 1).scores[0, 0]
    assert score == np.float32(math.log(1 + (2 - 1 + 0.5) / (1 + 0.5)))


def test_every_damaged_file_is_a_corrupt_error(tmp_path):
    build(tmp_path / "ix", passages(30))
    files = [p for p in (tmp_path / "ix").rglob("*") if p.is_file() and p.name != "manifest.json"]
    for file in files:
        good = file.read_bytes()
        for bad in (good[:-1], good[:-1] + bytes([good[-1] ^ 1])):
            file.write_bytes(bad)
            with pytest.raises(CorruptError):
                BM25.open(tmp_path / "ix")
        file.write_bytes(good)
    assert len(BM25.open(tmp_path / "ix")) == 30


def test_an_empty_index_finds_nothing(tmp_path):
    index = build(tmp_path / "ix", [])
    assert index.search(["flow"], 3).row(0) == []
    assert build(tmp_path / "iy", [Passage("a", "")]).search(["flow"], 3).row(0) == []


def test_a_collection_without_passages_is_refused(tmp_path):
    row = '{"id": "a", "title": "", "sections": [{"heading": "", "paragraphs": ["x"]}], "metadata": {}}\n'
    (tmp_path / "documents.jsonl").write_text(row)
    folder = Folder(tmp_path / "out.partial", tmp_path / "out", resumed=False)
    with pytest.raises(DataError, match="no passages to index"):
        run(BM25Config(collection=tmp_path), folder)


def test_settings_that_differ_from_those_of_the_base_are_refused(tmp_path):
    build(tmp_path / "a", passages(5))
    for values in ({"language": "german"}, {"title_weight": 2.0}, {"k1": 1.2}):
        folder = Folder(tmp_path / "out.partial", tmp_path / "out", resumed=False)
        with pytest.raises(RecipeError, match=f"{next(iter(values))} = .* base was indexed with"):
            run(BM25Config(base=tmp_path / "a", **values), folder)
    with workspace.stage(tmp_path / "b", kind="bm25", recipe={}, inputs={}) as folder:
        run(BM25Config(base=tmp_path / "a", language="en", k1=0.9, compact=True), folder)
    assert len(BM25.open(tmp_path / "b")) == 5


def test_weights_that_leave_nothing_are_refused():
    with pytest.raises(ValueError, match="both have weight 0"):
        BM25Config(collection="c", title_weight=0, body_weight=0)


def test_ids_to_delete_that_are_no_text_name_the_line(tmp_path):
    (tmp_path / "gone").write_bytes(b"p1\n\x81\n")
    with pytest.raises(DataError, match="line 2"):
        BM25Config(base=tmp_path, delete=tmp_path / "gone").ids_to_delete()


def craft(folder, name, change):
    """Change an array of a segment and its manifest, as a stranger who shares an index could."""
    path = folder / "segments" / "00000" / f"{name}.npy"
    npy.save(path, change(npy.load(path).copy()))
    rewrite_manifest(path)


@pytest.mark.parametrize("gone", [[3, 3], [5, 2], [-1], [40], [1.0]])
def test_deleted_passages_are_numbers_in_order(tmp_path, gone):
    build(tmp_path / "a", passages(40))
    build(tmp_path / "b", passages(1, seed=1), base=tmp_path / "a", delete=["p3"])
    path = tmp_path / "b" / "deleted" / "00000.npy"
    path.unlink()
    npy.save(path, np.array(gone))
    rewrite_manifest(path)
    with pytest.raises(CorruptError, match=r"00000\.npy"):
        BM25.open(tmp_path / "b")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("title_weight", {}),
        ("k1", math.nan),
        ("b", 2),
        ("language", "klingon"),
        ("stop_words", "yes"),
        ("x", 1),
    ],
)
def test_settings_of_another_type_are_refused_by_their_name(tmp_path, key, value):
    build(tmp_path / "ix", passages(4))
    path = tmp_path / "ix" / search.SUMMARY
    row = json.loads(path.read_text())
    row["settings"][key] = value
    path.write_text(json.dumps(row))
    rewrite_manifest(path)
    with pytest.raises(CorruptError, match=rf"bm25.json: settings.{key} = "):
        BM25.open(tmp_path / "ix")


@pytest.mark.parametrize("names", [["../../a"], ["/a"], "00000", [0], None])
def test_segments_have_names_below_the_folder(tmp_path, names):
    build(tmp_path / "ix", passages(4))
    path = tmp_path / "ix" / search.SUMMARY
    path.write_text(json.dumps(json.loads(path.read_text()) | {"segments": names}))
    rewrite_manifest(path)
    with pytest.raises(CorruptError, match=r"bm25.json: segments"):
        BM25.open(tmp_path / "ix")


def far(values):
    values[len(values) // 2 :] = 1 << 30
    return values


def negative(values):
    values[len(values) // 2 :] = -(1 << 30)
    return values


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("docs", far),
        ("docs", negative),
        ("docs", lambda values: values.astype(np.int64)),
        ("docs", lambda values: values[:-3]),
        ("starts", lambda values: np.append(values[:-2] + (1 << 40), values[-2:])),
        ("starts", lambda values: values[::-1].copy()),
        ("starts", lambda values: values[:0]),
        ("tf", lambda values: values[:-1]),
        ("tf", lambda values: values.astype(np.float64)),
        ("lengths", lambda values: values[:, :1]),
        ("lengths", lambda values: -values),
        # Out of order within a term: a window of passages would be written outside of it.
        ("docs", lambda values: values[::-1].copy()),
        ("starts", lambda values: np.concatenate([values[:3], values[1:2], values[4:]])),
        ("starts", lambda values: values.astype(np.float64)),
        ("tf", lambda values: np.full(len(values), np.nan, np.float32)),
        ("ids_offsets", lambda values: values.astype(np.float64)),
        ("ids_offsets", lambda values: values[::-1].copy()),
        ("ids_order", lambda values: values + 1),
        ("ids_hashes", lambda values: values[::-1].copy()),
        ("texts_offsets", lambda values: values[:-1]),
    ],
)
def test_postings_that_point_outside_are_refused_before_a_kernel_runs(tmp_path, name, change):
    build(tmp_path / "ix", passages(40))
    craft(tmp_path / "ix", name, change)
    with pytest.raises(CorruptError, match=r"00000.* has "):
        BM25.open(tmp_path / "ix").search(QUERIES, 10)
    with pytest.raises(CorruptError, match=r"00000.* has "):
        build(tmp_path / "more", passages(3, seed=1), base=tmp_path / "ix", compact=True)


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="the system has no call for it")
@pytest.mark.skipif(MACOS or WINDOWS, reason="no call takes the room there")
def test_room_for_merged_postings_is_taken_before_they_are_written(tmp_path, monkeypatch):
    """Writing a map on a full disk would end the process with SIGBUS, not with an error."""
    build(tmp_path / "a", passages(40))

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        build(tmp_path / "b", passages(3, seed=1), base=tmp_path / "a", delete=["p1", "p2"], compact=True)


def test_merged_postings_are_the_same_where_no_call_takes_the_room(tmp_path, monkeypatch):
    build(tmp_path / "a", passages(40))
    for name in ("with", "without"):
        build(tmp_path / name, passages(3, seed=1), base=tmp_path / "a", delete=["p1", "p2"], compact=True)
        monkeypatch.delattr(os, "posix_fallocate", raising=False)
    files = sorted(path.relative_to(tmp_path / "with") for path in (tmp_path / "with").rglob("*.npy"))
    assert [(tmp_path / "with" / f).read_bytes() for f in files] == [
        (tmp_path / "without" / f).read_bytes() for f in files
    ]


MIXED = [
    Passage("en-1", "The kitchen was renovated, and the landlord paid for it.", language="en"),
    Passage("en-2", "Los Angeles is where dice are made; few die young.", language="en"),
    Passage("de-1", "Die Küche wurde renoviert, die Häuser nicht.", language="de"),
    Passage("de-2", "Die Straße ist gesperrt.", language="de"),
    Passage("fr-1", "La sécurité des employés et les congés payés.", language="fr"),
    Passage("fr-2", "Les élèves ont mangé à la cantine.", language="fr"),
    Passage("pl-1", "Zażółć gęślą jaźń, Kraków i Łódź.", language="xx"),
    Passage("ja-1", "休暇の申請は人事部へ", language="ja"),
]
AUTO = BM25Settings(language="auto", fold=True)


@pytest.mark.parametrize(
    "query, best",
    [
        ("kuche", "de-1"), ("Küche", "de-1"), ("kueche", "de-1"), ("haus", "de-1"), ("strasse", "de-2"),
        ("conges", "fr-1"), ("congé", "fr-1"), ("securite", "fr-1"), ("employe", "fr-1"), ("eleve", "fr-2"),
        ("manger à la cantine", "fr-2"), ("kitchens", "en-1"), ("krakow", "pl-1"), ("lodz", "pl-1"), ("申請", "ja-1"),
    ],
)  # fmt: skip
def test_every_passage_is_found_in_its_own_language_without_accents_too(tmp_path, query, best):
    assert found(build(tmp_path / "i", MIXED, AUTO), [query])[0][0][0] == best


def test_stop_words_of_the_querys_language_find_nothing_in_others(tmp_path):
    index = build(tmp_path / "i", MIXED, AUTO)
    assert [id for id, _ in found(index, ["die Küche und die Häuser"])[0]] == ["de-1"]
    assert [id for id, _ in found(index, ["why do they die"])[0]] == ["en-2"]


def test_a_word_of_several_languages_has_one_idf(tmp_path):
    """A name is as rare in German passages as it is in all of them."""
    rows = [Passage(f"en-{i}", "berlin wall", language="en") for i in range(3)]
    rows += [Passage("de-0", "berlin mauer", language="de"), Passage("de-1", "etwas", language="de")]
    hits = found(build(tmp_path / "i", rows, BM25Settings(language="auto", fold=True, b=0)), ["Berlin"])[0]
    assert {round(score, 5) for _, score in hits} == {round(math.log(1 + 1.5 / 4.5) / 1.9, 5)}


def test_an_english_index_is_the_same_whether_its_language_was_detected_or_named(tmp_path):
    rows = [Passage(p.id, p.text, p.title, language="en") for p in passages(60)]
    detected = build(tmp_path / "detected", rows, AUTO)
    assert found(detected, QUERIES) == found(build(tmp_path / "named", passages(60)), QUERIES)
    assert detected.settings.languages == ("english",)


def test_languages_of_added_passages_are_added(tmp_path):
    build(tmp_path / "base", MIXED[:2], AUTO)
    index = build(tmp_path / "i", MIXED[2:], settings_of(tmp_path / "base"), base=tmp_path / "base")
    assert index.settings.languages == ("english", "french", "german", "japanese", "none")
    assert found(index, ["kuche", "kitchen"]) == found(
        build(tmp_path / "all", MIXED, AUTO), ["kuche", "kitchen"]
    )


def test_accents_are_kept_on_request_and_in_older_indexes(tmp_path):
    index = build(tmp_path / "i", MIXED, BM25Settings(language="auto"))
    assert found(index, ["securite"]) == [[]]
    assert found(index, ["sécurité"])[0][0][0] == "fr-1"


def test_an_explanation_scores_a_passage_in_its_own_language(tmp_path):
    index = build(tmp_path / "i", MIXED, AUTO)
    for query in ("securite des employes", "Küche und Häuser", "kitchen"):
        scores = dict(found(index, [query])[0])
        explained = bm25_score(index, query)([passage for passage in MIXED if passage.id in scores])
        assert sorted(explained) == pytest.approx(sorted(scores.values()), rel=1e-5)


@pytest.mark.parametrize(("language", "word"), [("greek", "ετε"), ("turkish", "leri")])
def test_a_word_of_which_the_stemmer_leaves_nothing_is_its_own_term(language, word):
    for analyzer in (Analyzer(language), Analyzer(language, fold=True, tag="x:")):
        assert analyzer.term(word) == analyzer.tag + word
        assert "" not in [untagged(term) for term in analyzer.variants(word)]
