"""The table of stages: command -> (config, function). A stage's code is imported when it runs, so help is quick."""

from __future__ import annotations

from liebig.analyse.config import AttentionConfig, ErrorsConfig, LeakageConfig, NeighboursConfig, SpaceConfig
from liebig.corpus.config import PassagesConfig, PrepareConfig
from liebig.corpus.init_config import ConvertConfig, InitConfig
from liebig.corpus.texts_config import TextsConfig
from liebig.corpus.tokenizer_config import TokenizerConfig
from liebig.encode.config import EncodeConfig, OnnxConfig
from liebig.evaluate.config import CompareConfig, CurveConfig, EvaluateConfig
from liebig.finetune.average_config import AverageConfig
from liebig.finetune.config import FinetuneConfig
from liebig.index.config import IndexConfig
from liebig.lexical.config import BM25Config
from liebig.model.config import ImportConfig
from liebig.pipeline import Stage
from liebig.pretrain.config import PretrainConfig
from liebig.queries.config import QueriesGenerateConfig, QueriesInspectConfig, QueriesTrainConfig
from liebig.report.config import ReportConfig
from liebig.rerank.config import RerankScoreConfig, RerankTrainConfig
from liebig.rerank.fuse_config import FuseConfig
from liebig.search.config import MineConfig, SearchConfig
from liebig.workspace import Folder


def _init(config: InitConfig, folder: Folder) -> None:
    from liebig.corpus.init import run

    run(config, folder)


def _convert(config: ConvertConfig, folder: Folder) -> None:
    from liebig.corpus.convert import run

    run(config, folder)


def _tokenizer(config: TokenizerConfig, folder: Folder) -> None:
    from liebig.corpus.train_tokenizer import run

    run(config, folder)


def _prepare(config: PrepareConfig, folder: Folder) -> None:
    from liebig.corpus.run import run

    run(config, folder)


def _passages(config: PassagesConfig, folder: Folder) -> None:
    from liebig.retriever.passages import run

    run(config, folder)


def _texts(config: TextsConfig, folder: Folder) -> None:
    from liebig.corpus.texts import run

    run(config, folder)


def _pretrain(config: PretrainConfig, folder: Folder) -> None:
    from liebig.pretrain.run import run

    run(config, folder)


def _plan_pretrain(config: PretrainConfig) -> str:
    from liebig.pretrain.plan import plan

    return str(plan(config))


def _import(config: ImportConfig, folder: Folder) -> None:
    from liebig.model.run import run

    run(config, folder)


def _bm25(config: BM25Config, folder: Folder) -> None:
    from liebig.lexical.run import run

    run(config, folder)


def _queries_train(config: QueriesTrainConfig, folder: Folder) -> None:
    from liebig.queries.run_train import run

    run(config, folder)


def _queries_generate(config: QueriesGenerateConfig, folder: Folder) -> None:
    from liebig.queries.run_generate import run

    run(config, folder)


def _plan_queries(config: QueriesGenerateConfig) -> str:
    from liebig.queries.run_generate import plan

    return plan(config)


def _queries_inspect(config: QueriesInspectConfig, folder: Folder) -> None:
    from liebig.queries.inspection import run

    run(config, folder)


def _encode(config: EncodeConfig, folder: Folder) -> None:
    from liebig.encode.run import run

    run(config, folder)


def _onnx(config: OnnxConfig, folder: Folder) -> None:
    from liebig.encode.onnx import run

    run(config, folder)


def _retrieve(config: SearchConfig, folder: Folder) -> None:
    from liebig.search.run import run

    run(config, folder)


def _index(config: IndexConfig, folder: Folder) -> None:
    from liebig.index.run import run

    run(config, folder)


def _mine(config: MineConfig, folder: Folder) -> None:
    from liebig.search.run_mine import run

    run(config, folder)


def _finetune(config: FinetuneConfig, folder: Folder) -> None:
    from liebig.finetune.run import run

    run(config, folder)


def _average(config: AverageConfig, folder: Folder) -> None:
    from liebig.finetune.average import run

    run(config, folder)


def _fuse(config: FuseConfig, folder: Folder) -> None:
    from liebig.rerank.fuse import run

    run(config, folder)


def _rerank_train(config: RerankTrainConfig, folder: Folder) -> None:
    from liebig.rerank.run import run_train

    run_train(config, folder)


def _rerank_score(config: RerankScoreConfig, folder: Folder) -> None:
    from liebig.rerank.run import run_score

    run_score(config, folder)


def _evaluate(config: EvaluateConfig, folder: Folder) -> None:
    from liebig.evaluate.run import run

    run(config, folder)


def _compare(config: CompareConfig, folder: Folder) -> None:
    from liebig.evaluate.compare import run

    run(config, folder)


def _curve(config: CurveConfig, folder: Folder) -> None:
    from liebig.evaluate.curve import run

    run(config, folder)


def _analyse_attention(config: AttentionConfig, folder: Folder) -> None:
    from liebig.analyse.run import run_attention

    run_attention(config, folder)


def _analyse_neighbours(config: NeighboursConfig, folder: Folder) -> None:
    from liebig.analyse.run import run_neighbours

    run_neighbours(config, folder)


def _analyse_space(config: SpaceConfig, folder: Folder) -> None:
    from liebig.analyse.run import run_space

    run_space(config, folder)


def _analyse_errors(config: ErrorsConfig, folder: Folder) -> None:
    from liebig.analyse.run import run_errors

    run_errors(config, folder)


def _analyse_leakage(config: LeakageConfig, folder: Folder) -> None:
    from liebig.analyse.run import run_leakage

    run_leakage(config, folder)


def _report(config: ReportConfig, folder: Folder) -> None:
    from liebig.report.run import run

    run(config, folder)


_ALL = (
    Stage(
        "init",
        InitConfig,
        _init,
        "Read data in any of the field's formats into a collection, and print what a careful person would look at.",
        "liebig init ~/articles stdlib: --out runs/collection",
        positional="paths",
    ),
    Stage(
        "convert",
        ConvertConfig,
        _convert,
        "Write a collection, or a run, in another of the field's formats.",
        "liebig convert runs/collection --to beir --out runs/beir",
        positional="source",
    ),
    Stage(
        "tokenizer",
        TokenizerConfig,
        _tokenizer,
        "Learn a tokenizer from collections; the same texts give the same bytes.",
        "liebig tokenizer runs/collection --vocab-size 16384 --out runs/tokenizer",
        positional="collections",
    ),
    Stage(
        "prepare",
        PrepareConfig,
        _prepare,
        "Split a collection into sentences and tokens: the memory-mapped store that training reads.",
        "liebig prepare runs/collection --tokenizer runs/tokenizer --out runs/store",
        positional="collection",
    ),
    Stage(
        "passages",
        PassagesConfig,
        _passages,
        "Cut a collection's documents into passages of whole sentences.",
        "liebig passages runs/collection --tokenizer runs/tokenizer --length 144 --out runs/passages",
        positional="collection",
    ),
    Stage(
        "texts",
        TextsConfig,
        _texts,
        "Cut a collection into texts of many lengths, passages to phrases, to learn a teacher's vectors of.",
        "liebig texts runs/collection --out runs/texts",
        positional="collection",
    ),
    Stage(
        "pretrain",
        PretrainConfig,
        _pretrain,
        "Train an encoder on text without labels: mlm, condenser, cocondenser, cotmae, simclr, moco or vectors.",
        "liebig pretrain recipe.toml objective.kind=condenser loop.minutes=30 --out runs/condenser",
        plan=_plan_pretrain,
    ),
    Stage(
        "import",
        ImportConfig,
        _import,
        "Convert a published Condenser, coCondenser or Contriever checkpoint into a model folder.",
        "liebig import ~/models/co-condenser-marco --out runs/cocondenser",
        positional="source",
    ),
    Stage(
        "bm25",
        BM25Config,
        _bm25,
        "Index a collection's passages for BM25, or add passages to an index and take some out.",
        "liebig bm25 runs/collection --out runs/bm25",
        positional="collection",
    ),
    Stage(
        "queries train",
        QueriesTrainConfig,
        _queries_train,
        "Train a query generator on passages and their queries, from a seq2seq model or an encoder.",
        "liebig queries train runs/collection model.kind=folder model.path=runs/flan-t5 --out runs/generator",
        positional="collections",
    ),
    Stage(
        "queries generate",
        QueriesGenerateConfig,
        _queries_generate,
        "Write queries for every passage, by a generator, a language model's server, or from a file.",
        "liebig queries generate runs/collection source.kind=model source.path=runs/generator/model --out runs/queries",
        positional="collection",
        plan=_plan_queries,
    ),
    Stage(
        "queries inspect",
        QueriesInspectConfig,
        _queries_inspect,
        "Show generated queries beside their passages, and count what they find and repeat.",
        "liebig queries inspect runs/queries --bm25 runs/bm25 --out runs/inspected",
        positional="folders",
    ),
    Stage(
        "encode",
        EncodeConfig,
        _encode,
        "Turn passages or queries into shards of vectors; an interrupted run goes on with the next shard.",
        "liebig encode runs/collection --model runs/condenser/model --out runs/vectors",
        positional="source",
    ),
    Stage(
        "onnx",
        OnnxConfig,
        _onnx,
        "Export a model for ONNX Runtime, in fp32 or int8.",
        "liebig onnx runs/condenser/model --out runs/onnx",
        positional="model",
    ),
    Stage(
        "index",
        IndexConfig,
        _index,
        "Index vectors: exact by default, FAISS or Milvus past the memory of one machine.",
        "liebig index runs/vectors --out runs/index",
        positional="vectors",
    ),
    Stage(
        "retrieve",
        SearchConfig,
        _retrieve,
        "Search all queries of a collection, by BM25, vectors or both, into TREC runs.",
        "liebig retrieve runs/collection --bm25 runs/bm25 --dense runs/index --split test --out runs/retrieved",
        positional="collection",
    ),
    Stage(
        "mine",
        MineConfig,
        _mine,
        "Take hard negatives from runs, and count what was dropped and why.",
        "liebig mine recipe.toml --out runs/negatives",
    ),
    Stage(
        "finetune",
        FinetuneConfig,
        _finetune,
        "Train a retriever on labelled or mined data: contrastive, soft labels, similarity; adaptive batches.",
        "liebig finetune recipe.toml loop.epochs=3 --out runs/retriever",
    ),
    Stage(
        "average",
        AverageConfig,
        _average,
        "Average the weights of models trained from one start with other seeds into one model.",
        "liebig average runs/seed-1/model runs/seed-2/model --out runs/averaged",
        positional="models",
    ),
    Stage(
        "fuse",
        FuseConfig,
        _fuse,
        "Fuse several runs of the same queries into one, by ranks or by scores.",
        "liebig fuse runs/seed-1/run.trec runs/seed-2/run.trec --out runs/fused",
        positional="runs",
    ),
    Stage(
        "rerank train",
        RerankTrainConfig,
        _rerank_train,
        "Train a cross-encoder on groups of a positive and negatives.",
        "liebig rerank train recipe.toml --out runs/reranker",
    ),
    Stage(
        "rerank score",
        RerankScoreConfig,
        _rerank_score,
        "Rerank a run, or write soft labels of training groups, with one cross-encoder or several.",
        "liebig rerank score recipe.toml --out runs/reranked",
    ),
    Stage(
        "evaluate",
        EvaluateConfig,
        _evaluate,
        "Evaluate a run or a model on a collection, with intervals, beside the papers' figures.",
        "liebig evaluate runs/bm25/run.trec runs/collection --out runs/evaluation",
        positional="collections",
    ),
    Stage(
        "compare",
        CompareConfig,
        _compare,
        "Compare systems pairwise on the same queries, with corrected significance tests.",
        "liebig compare runs/a/run.trec runs/b/run.trec --qrels runs/collection --out runs/comparison",
        positional="runs",
    ),
    Stage(
        "curve",
        CurveConfig,
        _curve,
        "Lay evaluations of models trained on more and more labels side by side.",
        "liebig curve runs/1k runs/10k runs/full sizes=['1000','10000','full'] --out runs/curve",
        positional="results",
    ),
    Stage(
        "analyse attention",
        AttentionConfig,
        _analyse_attention,
        "Entropy of CLS attention, layer by layer, of several models (Condenser, Figure 2).",
        "liebig analyse attention runs/mlm/model runs/condenser/model --texts runs/collection --out runs/attention",
        positional="models",
    ),
    Stage(
        "analyse neighbours",
        NeighboursConfig,
        _analyse_neighbours,
        "How far the neighbourhoods of two retrievers agree (coCondenser, Eq. 17).",
        "liebig analyse neighbours first=[runs/one.trec] second=[runs/two.trec] --out runs/neighbours",
    ),
    Stage(
        "analyse space",
        SpaceConfig,
        _analyse_space,
        "Alignment, uniformity, isotropy, hubness and effective dimension of a vector space.",
        "liebig analyse space runs/mlm/model --collection runs/collection --out runs/space",
        positional="models",
    ),
    Stage(
        "analyse errors",
        ErrorsConfig,
        _analyse_errors,
        "Which queries one system wins and loses against another, with their texts.",
        "liebig analyse errors runs/a/run.trec runs/b/run.trec --collection runs/collection --out runs/errors",
        positional="runs",
    ),
    Stage(
        "analyse leakage",
        LeakageConfig,
        _analyse_leakage,
        "Look for evaluation texts inside pre-training text.",
        "liebig analyse leakage runs/wiki --evaluation runs/collection --out runs/leakage",
        positional="corpus",
    ),
    Stage(
        "report",
        ReportConfig,
        _report,
        "Write one self-contained HTML page about a folder of results.",
        "liebig report runs/evaluation runs/comparison --out runs/report",
        positional="folders",
    ),
)
STAGES: dict[str, Stage] = {stage.name: stage for stage in _ALL}
