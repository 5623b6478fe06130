"""The splits of the experiments: disjoint, whole, and the same for ever."""

import importlib.util
import lzma
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEADER = "query-id\tcorpus-id\tscore"


@pytest.fixture(scope="module")
def splits():
    spec = importlib.util.spec_from_file_location("splits", ROOT / "experiments" / "splits.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def queries_of(path: Path) -> list[str]:
    return [line.split("\t")[0] for line in path.read_text().splitlines()[1:]]


def data_of(folder: Path, name: str, **qrels: list[str]) -> Path:
    (folder / name / "qrels").mkdir(parents=True)
    for file in ("corpus", "queries"):
        (folder / name / f"{file}.jsonl.xz").write_bytes(lzma.compress(b"{}\n"))
    for split, names in qrels.items():
        rows = [f"{query}\td{query}\t1" for query in names]
        (folder / name / "qrels" / f"{split}.tsv").write_text("\n".join([HEADER, *rows]) + "\n")
    return folder


def test_a_fifth_of_scifacts_training_claims_is_dev(splits, tmp_path):
    train = [str(i) for i in range(1000)]
    made = splits.folder(data_of(tmp_path, "scifact", train=train, test=["t"]), "scifact", tmp_path / "out")
    dev, rest = (queries_of(made / "qrels" / f"{split}.tsv") for split in ("dev", "train"))
    assert sorted(dev + rest) == sorted(train)
    assert 160 < len(dev) < 240
    assert queries_of(made / "qrels" / "test.tsv") == ["t"]


def test_75_of_cranfields_queries_are_dev(splits, tmp_path):
    names = [str(i) for i in range(1, 226) for _ in range(2)]
    made = splits.folder(data_of(tmp_path, "cranfield", test=names), "cranfield", tmp_path / "out")
    dev, test = (queries_of(made / "qrels" / f"{split}.tsv") for split in ("dev", "test"))
    assert (len(set(dev)), len(set(test)), set(dev) & set(test)) == (75, 150, set())


def test_the_draw_is_written_down(splits):
    assert sorted(splits.cranfield_dev(map(str, range(1, 226))), key=int)[:6] == CRANFIELD
    assert sorted(splits.scifact_dev(map(str, range(40))), key=int) == SCIFACT


def test_other_sets_keep_their_own_splits(splits, tmp_path):
    assert splits.folder(Path("data"), "squad", tmp_path) == Path("data/squad")


CRANFIELD = ["4", "8", "9", "10", "13", "17"]
SCIFACT = ["0", "1", "14", "18", "24", "31", "39"]
