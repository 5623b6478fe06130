"""One small, true-to-life file of every format that is a file: its name and its text."""

import json

SAMPLES: dict[str, tuple[str, str]] = {
    "dpr-questions": (
        "nq-test.qa.csv",
        "who got the first nobel prize in physics\t['Wilhelm Conrad Röntgen']\n",
    ),
    "sts": ("train.csv", 'A plane is taking off.,"An air plane, taking off.",5.0\nA man,A "man",3.8\n'),
    "tevatron-v1": (
        "train.jsonl",
        json.dumps(
            {
                "query_id": "1",
                "query": "who",
                "positive_passages": [{"docid": "a", "title": "T", "text": "x"}],
                "negative_passages": [{"docid": "b", "title": "", "text": "y"}],
            }
        )
        + "\n",
    ),
    "tevatron-v2": (
        "train.jsonl",
        '{"query_id":"1","query_text":"who","positive_document_ids":["a"],"negative_document_ids":["b","c"]}\n',
    ),
    "msmarco-hard-negatives": (
        "msmarco-hard-negatives.jsonl",
        '{"qid": 867436, "pos": [5238393], "neg": {"bm25": [1, 0], "tas-b": [0, 7]}}\n',
    ),
    "dpr-train": (
        "nq-train.json",
        '[\n{"question": "who", "answers": ["x"], "positive_ctxs": [{"title": "T", "text": "x y", "score": 1000,'
        ' "title_score": 1, "psg_id": "7"}], "negative_ctxs": [], "hard_negative_ctxs": [{"title": "U", "text": "z"}]}'
        "\n]\n",
    ),
    "dpr-results": (
        "results.json",
        '[{"question": "who", "answers": ["x"], "ctxs": [{"id": "wiki:7", "title": "T", "text": "x", "score": "81.5",'
        ' "has_answer": true}]}]',
    ),
    "cocondenser": ("marco.jsonl", '{"spans": ["One sentence.", "Another one."]}\n'),
    "condenser": ("wiki.jsonl", '{"text": "One paragraph."}\n{"text": "Another."}\n'),
    "qrels-rows": ("test.jsonl", '{"query-id": "q", "corpus-id": "d", "score": 1}\n'),
    "questions": ("dev.jsonl", '{"_id": "nq-dev-0", "text": "who", "answers": ["Bill Nighy"]}\n'),
    "documents": (
        "articles.jsonl",
        '{"id": "55397", "title": "Hadean", "sections": [{"h": "", "p": ["The Hadean."]}, {"h": "Name", "p": []}]}\n',
    ),
    "passages": ("corpus.jsonl", '{"_id": "4983", "title": "Matter", "text": "Alterations"}\n'),
    "tuples": ("train.jsonl", '{"anchor": "a", "positive": "b", "negative_1": "c", "negative_2": "d"}\n'),
    "trec-topics": (
        "topics.301-350.txt",
        "<top>\n\n<num> Number: 301\n<title> International Organized Crime\n\n<desc> Description:\nIdentify it.\n"
        "\n<narr> Narrative:\nA document.\n\n</top>\n",
    ),
    "trec-run": ("run.trec", "301 Q0 FBIS3-1 1 12.5 bm25\n301 Q0 FBIS3-2 2 11.25 bm25\n"),
    "trec-qrels": ("qrels.test.txt", "301 0 FBIS3-1 1\n301 0 FBIS3-2 -1\n"),
    "msmarco-run": ("run.tsv", "2\t0\t1\n2\t17\t2\n3\t5\t1\n"),
    "beir-qrels": ("test.tsv", "query-id\tcorpus-id\tscore\n1\t31715818\t1\n"),
    "tevatron-run": ("rank.txt", "2\t17\t81.25\n2\t0\t80.5\n"),
    "msmarco-id-triples": ("qidpidtriples.train.full.2.tsv", "1\t20\t300\n1\t20\t301\n2\t5\t6\n"),
    "dpr-passages": ("psgs_w100.tsv", 'id\ttext\ttitle\n1\t"Aaron ( or ; ""Ahärôn"")"\tAaron\n'),
    "msmarco-documents": ("msmarco-docs.tsv", "D1555982\thttps://a.b/\tTitle\tThe body of it.\n"),
    "msmarco-titled": ("corpus.tsv", "0\tManhattan\tThe presence of communication\n7\t\tNo title\n"),
    "msmarco-triples": (
        "triples.train.small.tsv",
        "is a little caffeine ok\tWe do not know\tIt is generally safe\n",
    ),
    "msmarco-queries": ("queries.dev.small.tsv", "1048578\tcost of endless pools\n"),
    "msmarco-passages": ("collection.tsv", "0\tThe presence of communication\n1\tThe Manhattan Project\n"),
    "texts": ("guide.md", "# Guide\n\nFirst.\n\n## Install\n\nRun it.\n"),
    "lines": ("paragraphs.txt", "One paragraph.\nAnother paragraph.\n"),
}
