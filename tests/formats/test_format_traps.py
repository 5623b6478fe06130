"""Every trap of the field's formats, sprung once: each test is named after the trap."""

import itertools
import pickle
import struct

import numpy as np
import pytest
from hypothesis import given, strategies as st

from liebig.base.errors import DataError
from liebig.base.records import Group, Hit, Judgement, Passage, Query, ScoredPair, Tuple
from liebig.formats import detect, dpr, msmarco, trec
from liebig.formats.items import Options, split_in
from liebig.formats.output import write_lines


def put(folder, name, text):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="")
    return path


def read(path, name=None, **options):
    return [item for found in detect(path, name) for item in found.items(Options(**options))]


def records(path, name=None, **options):
    return [item.record for item in read(path, name, **options)]


def beir(folder, qrels, corpus='{"_id": "d1", "text": "x"}\n', queries='{"_id": "q1", "text": "?"}\n'):
    put(folder, "corpus.jsonl", corpus)
    put(folder, "queries.jsonl", queries)
    put(folder, "qrels/test.tsv", qrels)
    return folder


def judgements(path):
    return [record for record in records(path) if isinstance(record, Judgement)]


def test_beir_qrels_without_header_keep_their_first_judgement(tmp_path):
    assert judgements(beir(tmp_path, "q1\td1\t1\nq1\td2\t0\n")) == [
        Judgement("q1", "d1", 1),
        Judgement("q1", "d2", 0),
    ]


def test_beir_qrels_header_is_not_a_judgement(tmp_path):
    assert judgements(beir(tmp_path, "query-id\tcorpus-id\tscore\nq1\td1\t2\n")) == [Judgement("q1", "d1", 2)]


def test_beir_first_line_that_is_neither_header_nor_judgement_is_refused(tmp_path):
    with pytest.raises(DataError, match="line 1: relevance must be a number"):
        records(beir(tmp_path, "q1\td1\tyes\n"))


@pytest.mark.parametrize("score", ["1.0", "1", " 1", "1e0"])
def test_beir_score_written_as_a_decimal_is_a_grade(tmp_path, score):
    assert judgements(beir(tmp_path, f"q1\td1\t{score}\n")) == [Judgement("q1", "d1", 1)]


def test_beir_score_that_is_no_whole_number_is_refused(tmp_path):
    with pytest.raises(DataError, match="not a whole number"):
        records(beir(tmp_path, "q1\td1\t0.5\n"))


@pytest.mark.parametrize("title", ["", ', "title": null', ', "title": ""'])
def test_beir_title_absent_or_none_is_empty(tmp_path, title):
    found = records(beir(tmp_path, "q1\td1\t1\n", corpus=f'{{"_id": "d1", "text": "x"{title}}}\n'))
    assert found[0] == Passage("d1", "x", "")


def test_beir_quotes_in_ids_are_ordinary_characters(tmp_path):
    assert judgements(beir(tmp_path, 'q"1\t"d1\t1\n"q2"\td2\t1\n')) == [
        Judgement('q"1', '"d1', 1),
        Judgement('"q2"', "d2", 1),
    ]


def test_beir_queries_that_are_not_judged_are_kept(tmp_path):
    queries = '{"_id": "q1", "text": "?"}\n{"_id": "q2", "text": "??"}\n'
    assert [
        r.id for r in records(beir(tmp_path, "q1\td1\t1\n", queries=queries)) if isinstance(r, Query)
    ] == ["q1", "q2"]


def test_beir_doc_and_answers_are_kept(tmp_path):
    corpus = '{"_id": "a#0", "title": "A", "text": "x", "doc": "a"}\n'
    queries = '{"_id": "q1", "text": "?", "answers": ["x", "y"]}\n'
    found = records(beir(tmp_path, "q1\ta#0\t1\n", corpus, queries))
    assert found[:2] == [Passage("a#0", "x", "A", "a"), Query("q1", "?", ("x", "y"))]


@pytest.mark.parametrize("name", ["", "a b", " a", "a ", "a\t", "\x0b", "a\nb"])
@pytest.mark.parametrize("beside", ["", "x"])
def test_trec_lines_name_the_id_they_cannot_hold(name, beside):
    with pytest.raises(DataError, match="white space") as caught:
        list(trec.run_lines([Hit("q", name, 1.0, 1), Hit("q", beside, 0.5, 2)]))
    assert repr(name) in str(caught.value)


def test_trec_columns_are_cut_at_any_white_space(tmp_path):
    path = put(tmp_path, "qrels.txt", "301  0\tFBIS-1   1\n301 Q0 FBIS-2\t0  \n")
    assert records(path) == [Judgement("301", "FBIS-1", 1), Judgement("301", "FBIS-2", 0)]


def test_trec_ids_may_hold_spaces_that_are_not_ascii(tmp_path):
    assert records(put(tmp_path, "qrels.txt", "q\u00a01 0 d\u30002 1\n")) == [
        Judgement("q\u00a01", "d\u30002", 1)
    ]


def test_trec_qrels_may_be_negative(tmp_path):
    assert records(put(tmp_path, "qrels.txt", "1 0 d -2\n")) == [Judgement("1", "d", -2)]


def test_trec_run_is_ranked_by_score_then_id_descending_and_its_rank_ignored(tmp_path):
    path = put(tmp_path, "run.trec", "1 Q0 a 1 1.0 t\n1 Q0 c 2 1.0 t\n1 Q0 b 3 2.0 t\n")
    assert [(hit.passage, hit.rank) for hit in trec.by_score(records(path))] == [("b", 1), ("c", 2), ("a", 3)]


def test_trec_scores_that_are_equal_in_32_bits_are_ties():
    hits = [Hit("1", "a", 1.00000000002, 1), Hit("1", "b", 1.00000000001, 2)]
    assert [hit.passage for hit in trec.by_score(hits)] == ["b", "a"]


def test_trec_run_is_written_with_scores_that_decrease_strictly_in_32_bits():
    scores = [3.0, 1.0, 1.0 + 1e-12, 1.0, 0.0, 0.0, -0.0, -5.0]
    lines = list(trec.run_lines(Hit("1", str(n), score, n) for n, score in enumerate(scores, 1)))
    written = [struct.unpack("<f", struct.pack("<f", float(line.split()[4])))[0] for line in lines]
    assert all(a > b for a, b in itertools.pairwise(written))
    assert [line.split()[2] for line in lines] == [str(n) for n in range(1, 9)]


def test_trec_scores_are_written_with_six_decimals_at_least():
    lines = trec.run_lines([Hit("1", "a", 12.5, 1), Hit("1", "b", 0.1234567890123, 2)])
    assert [line.split()[4] for line in lines] == ["12.500000", "0.1234567890123"]


def test_trec_scores_that_do_not_decrease_are_lowered_by_the_smallest_step():
    below = np.nextafter(np.float32([1.0, 0.0, np.inf]), np.float32(-np.inf)).astype(np.float64)
    assert trec.decreasing(np.array([1.0, 1.0, 0.0, -0.0])).tolist() == [1.0, below[0], 0.0, below[1]]
    assert trec.decreasing(np.array([np.inf, 2.0])).tolist() == [below[2], 2.0]
    for nan in (np.nan, -np.nan):  # one processor makes the first, another the second
        assert trec.decreasing(np.array([1.0, nan, 0.5])).tolist() == [1.0, below[0], 0.5]


@given(st.lists(st.floats(allow_nan=False) | st.sampled_from([1e-5, 0.25, 1e6, 1e16, -0.0, 1e-3, 2.5e-4])))
def test_trec_scores_are_written_alike_one_by_one_and_together(scores):
    kept = trec.decreasing(np.array(scores, np.float64)).tolist()
    lines = trec.query_lines("q", [str(n) for n in range(len(scores))], scores)
    assert [line.split()[4] for line in lines] == [trec.digits(score) for score in kept]


def test_trec_id_with_a_space_is_not_written():
    with pytest.raises(DataError, match="white space"):
        list(trec.qrels_lines([Judgement("q 1", "d", 1)]))


def test_msmarco_passage_0_is_a_passage(tmp_path):
    assert records(put(tmp_path, "collection.tsv", "0\tFirst\n1\tSecond\n"))[0] == Passage("0", "First")
    assert [h.passage for h in records(put(tmp_path, "run.tsv", "7\t0\t1\n7\t3\t2\n"))] == ["0", "3"]


def test_msmarco_run_keeps_the_order_of_its_ranks(tmp_path):
    hits = records(put(tmp_path, "run.tsv", "7\t5\t1\n7\t9\t2\n7\t3\t3\n"))
    assert [hit.passage for hit in trec.by_score(hits)] == ["5", "9", "3"]
    assert [hit.rank for hit in hits] == [1, 2, 3]


def test_msmarco_run_takes_whole_numbers_as_ids():
    with pytest.raises(DataError, match="not a whole number"):
        list(msmarco.run_lines([Hit("7", "D1", 1.0, 1)]))


def test_msmarco_run_deeper_than_1000_is_refused_with_a_way_out():
    hits = [Hit("7", str(n), -float(n), n) for n in range(1, 1002)]
    with pytest.raises(DataError, match="--depth 1000"):
        list(msmarco.run_lines(hits))
    assert len(list(msmarco.run_lines(trec.cut(hits, 1000)))) == 1000


def test_msmarco_dev_small_is_a_split_of_its_own(tmp_path):
    assert [
        split_in(name) for name in ("qrels.dev.small.tsv", "qrels.dev.tsv", "qidpidtriples.train.full.2.tsv")
    ] == [
        "dev.small",
        "dev",
        "train",
    ]
    small = read(put(tmp_path, "qrels.dev.small.tsv", "1\t0\t2\t1\n"))
    assert small[0].split == "dev.small"


def test_rocketqa_titles_are_joined_by_id_in_any_order(tmp_path):
    put(tmp_path, "para.txt", "0\ta\n1\tb\n2\tc\n")
    put(tmp_path, "para.title.txt", "2\tC\n0\tA\n")
    assert records(tmp_path) == [Passage("0", "a", "A"), Passage("1", "b", ""), Passage("2", "c", "C")]


@pytest.mark.parametrize("only", ["para.txt", "para.title.txt"])
def test_rocketqa_texts_or_titles_alone_are_refused(tmp_path, only):
    put(tmp_path, only, "0\ta\n")
    with pytest.raises(DataError, match=r"the folder needs para\.txt and para\.title\.txt"):
        records(tmp_path, "msmarco-titled")


def test_msmarco_triples_of_one_query_and_positive_are_one_group(tmp_path):
    path = put(tmp_path, "qidpidtriples.train.full.2.tsv", "1\t20\t300\r\n1\t20\t301\r\n2\t5\t6\r\n")
    assert records(path) == [Group("1", ("20",), ("300", "301")), Group("2", ("5",), ("6",))]


def test_hard_negatives_with_scores_and_without(tmp_path):
    plain = put(tmp_path, "a.jsonl", '{"qid": 1, "pos": [2], "neg": {"bm25": [3, 2], "x": [3, 4]}}\n')
    assert records(plain) == [Group("1", ("2",), ("3", "4"))]
    scored = (
        '{"qid": 1, "pos": [{"pid": 2, "ce-score": 9.5}], '
        '"neg": {"bm25": [{"pid": 3, "ce-score": -1.5}], "x": [{"pid": 3, "ce-score": -1.5}]}}\n'
    )
    assert records(put(tmp_path, "b.jsonl", scored)) == [Group("1", ("2",), ("3",), (9.5,), (-1.5,))]


def test_dpr_negatives_are_strings_or_objects_and_ids_have_two_names(tmp_path):
    row = (
        '[{"question": "q", "answers": [], "positive_ctxs": [{"title": "T", "text": "x", "passage_id": "7"}],'
        ' "negative_ctxs": ["plain text"], "hard_negative_ctxs": [{"title": "", "text": "y", "psg_id": 8}]}]'
    )
    found = records(put(tmp_path, "train.json", row))
    passages = {record.text: record.id for record in found if isinstance(record, Passage)}
    assert (passages["x"], passages["y"]) == ("7", "8")
    assert found[-1] == Group("train-0", ("7",), ("8", passages["plain text"]))


def test_dpr_context_scores_are_no_teacher_scores(tmp_path):
    row = '[{"question": "q", "answers": [], "positive_ctxs": [{"title": "T", "text": "x", "score": 1000}]}]'
    group = records(put(tmp_path, "train.json", row))[-1]
    assert (group.positive_scores, group.negative_scores) == ((), ())


def test_dpr_passages_have_their_text_before_their_title(tmp_path):
    path = put(tmp_path, "psgs_w100.tsv", 'id\ttext\ttitle\n1\t"Aaron (""A"")"\tTitle\n')
    assert records(path) == [Passage("1", 'Aaron ("A")', "Title")]
    assert records(put(tmp_path, "none.tsv", "1\ttext\ttitle\n"), "dpr-passages") == [
        Passage("1", "text", "title")
    ]


def test_dpr_passages_whose_header_says_another_order_follow_it(tmp_path):
    assert records(put(tmp_path, "x.tsv", "id\ttitle\ttext\n1\tT\tx\n")) == [Passage("1", "x", "T")]


@pytest.mark.parametrize(
    "code", ["__import__('os').system('true')", "[open('/etc/passwd').read()]", "[1+1]", "[x"]
)
def test_dpr_answers_are_never_evaluated(tmp_path, code):
    with pytest.raises(DataError, match=r"line 1: (the )?answers"):
        records(put(tmp_path, "nq-test.qa.csv", f"who\t{code}\n"), "dpr-questions")


@pytest.mark.parametrize("text", ["", "two\nlines", "a\rreturn"])
def test_dpr_questions_that_a_line_cannot_hold_are_refused(text):
    with pytest.raises(DataError, match="the question 'q' is empty or contains a line break") as caught:
        list(dpr.question_lines([Query("q", text)]))
    assert "--collapse" in str(caught.value.fix)


def test_dpr_questions_of_nq_and_triviaqa(tmp_path):
    text = 'who\t[\'A\', "d\'Artagnan"]\nwhat\t"[\'x\', ""y\'s""]"\n"Oh" he said\t[\'z\']\n'
    found = records(put(tmp_path, "trivia-dev.qa.csv", text), "dpr-questions")
    assert found == [
        Query("trivia-dev-0", "who", ("A", "d'Artagnan")),
        Query("trivia-dev-1", "what", ("x", "y's")),
        Query("trivia-dev-2", '"Oh" he said', ("z",)),
    ]


def test_dpr_results_have_scores_as_strings_and_prefixed_ids(tmp_path):
    row = '[{"question": "who", "answers": [], "ctxs": [{"id": "wiki:7", "score": "81.5", "title": "", "text": ""}]}]'
    assert records(put(tmp_path, "r.json", row))[1] == Hit("r-0", "wiki:7", 81.5, 1)
    assert records(tmp_path / "r.json", id_prefix="wiki:")[1] == Hit("r-0", "7", 81.5, 1)


def test_tevatron_pickle_is_never_read(tmp_path):
    path = tmp_path / "corpus.pkl"
    path.write_bytes(pickle.dumps((np.zeros((1, 2), np.float32), ["1"])))
    with pytest.raises(DataError, match="is a pickle"):
        detect(path)
    path.rename(tmp_path / "corpus.data")
    with pytest.raises(DataError, match="is a pickle"):
        detect(tmp_path / "corpus.data")


def test_tevatron_both_generations(tmp_path):
    first = '{"docid": "1", "title": null, "text": "x"}\n'
    second = '{"docid": "1", "document_text": "x"}\n'
    for number, text in enumerate((first, second)):
        assert records(put(tmp_path, f"{number}.jsonl", text)) == [Passage("1", "x")]


def test_condenser_token_ids_are_refused(tmp_path):
    for text in ('{"text": [101, 7, 102]}\n', '{"spans": [[7, 8], [9]]}\n'):
        with pytest.raises(DataError, match="contains token ids"):
            records(put(tmp_path, "x.jsonl", text))


def test_sentence_transformers_columns_go_by_order(tmp_path):
    rows = '{"question": "q", "answer": "a", "negative": "n"}\n'
    assert records(put(tmp_path, "x.jsonl", rows)) == [Tuple("q", "a", ("n",))]
    assert records(put(tmp_path, "y.csv", "sentence1,sentence2,score\na,b,0.5\n")) == [
        ScoredPair("a", "b", 0.5)
    ]


def test_sentence_transformers_lists_and_query_pos_neg(tmp_path):
    assert records(put(tmp_path, "x.jsonl", '["a", "b"]\n["a", "b", "c"]\n')) == [
        Tuple("a", "b"),
        Tuple("a", "b", ("c",)),
    ]
    rows = '{"query": "q", "pos": ["a", "b"], "neg": ["n"]}\n'
    assert records(put(tmp_path, "y.jsonl", rows)) == [Tuple("q", "a", ("n",)), Tuple("q", "b", ("n",))]


def test_a_third_text_column_that_is_no_negative_is_refused_in_tuples(tmp_path):
    with pytest.raises(DataError, match="'category' is not named like a negative"):
        records(
            put(tmp_path, "x.jsonl", '{"question": "q", "answer": "a", "category": "sports"}\n'), "tuples"
        )


def test_old_topics_keep_their_title_and_other_fields_on_request(tmp_path):
    text = (
        "<top>\n<num> Number: 301 \n<title> Topic: Organized\n Crime\n<desc> Description:\nIdentify &amp; find.\n"
        "</top>\n\n<top>\n<num> Number: 302\n<title> Polio\n<desc> Description:\nIs it?\n</top>\n"
    )
    path = put(tmp_path, "topics.txt", text)
    assert records(path) == [Query("301", "Organized Crime"), Query("302", "Polio")]
    assert records(path, topic="desc") == [Query("301", "Identify & find."), Query("302", "Is it?")]


def test_newer_topics_with_closed_tags(tmp_path):
    fields = "<query>coronavirus origin</query>\n<question>what</question>"
    text = f'<topics>\n<topic number="1">\n{fields}\n</topic>\n</topics>\n'
    assert records(put(tmp_path, "topics.xml", text)) == [Query("1", "coronavirus origin")]


def test_a_carriage_return_before_the_line_feed_is_no_text(tmp_path):
    path = tmp_path / "collection.tsv"
    path.write_bytes("\ufeff0\tFirst\r\n1\tSecond\r\n".encode())
    assert records(path) == [Passage("0", "First"), Passage("1", "Second")]


def test_a_line_ends_at_a_line_feed_only(tmp_path):
    text = "a\u2028b\u0085c\x0bd\x0ce"
    write_lines(tmp_path / "collection.tsv", [f"0\t{text}", "1\tz"])
    assert records(tmp_path / "collection.tsv") == [Passage("0", text), Passage("1", "z")]
