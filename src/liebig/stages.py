"""The table of stages: command -> (config, function). A stage's code is imported when it runs, so help is quick."""

from __future__ import annotations

from liebig.corpus.config import PrepareConfig
from liebig.corpus.init_config import ConvertConfig, InitConfig
from liebig.corpus.tokenizer_config import TokenizerConfig
from liebig.model.config import ImportConfig
from liebig.pipeline import Stage
from liebig.pretrain.config import PretrainConfig
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


def _import(config: ImportConfig, folder: Folder) -> None:
    from liebig.model.run import run

    run(config, folder)


def _pretrain(config: PretrainConfig, folder: Folder) -> None:
    from liebig.pretrain.run import run

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
        "pretrain",
        PretrainConfig,
        _pretrain,
        "Train an encoder on text without labels: mlm, condenser, cocondenser, cotmae, simclr or moco.",
        "liebig pretrain recipe.toml objective.kind=condenser loop.minutes=30 --out runs/condenser",
    ),
    Stage(
        "import",
        ImportConfig,
        _import,
        "Convert a published Condenser, coCondenser or Contriever checkpoint into a model folder.",
        "liebig import ~/models/co-condenser-marco --out runs/cocondenser",
        positional="source",
    ),
)
STAGES: dict[str, Stage] = {stage.name: stage for stage in _ALL}
