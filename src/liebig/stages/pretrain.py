"""`liebig pretrain`: stores and a starting model in, a model folder and a log out.

The recipe is in `methods/pretraining.py`; what is learned is up to the method it names (`methods/__init__.py`), and the
course of a training is in `train/stage.py`. `model/` can be loaded by transformers and sentence-transformers; heads lie
beside it. Under torchrun every process runs this; the first one writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from liebig.base.errors import RecipeError
from liebig.base.pipeline import Stage
from liebig.base.progress import quantity
from liebig.base.rng import key
from liebig.base.workspace import Folder
from liebig.methods import head_classes, methods, pretraining as presets
from liebig.methods.base import Method, MethodStart, Shape
from liebig.methods.held_out import evaluate
from liebig.methods.pretraining import PretrainConfig
from liebig.methods.shapes import Maker
from liebig.methods.sources import mixture as sources
from liebig.model.backbone import Backbone, make_backbone
from liebig.model.encoder import Encoder
from liebig.model.folder import load_heads
from liebig.model.settings import length_of_use, read_modules
from liebig.store import TokenStore
from liebig.text.layout import LONGEST_USE, Layout, checked_length
from liebig.text.tokenizer import Tokenizer
from liebig.text.tokenizer_folder import has_tokenizer
from liebig.train.distributed import World
from liebig.train.loop import Epochs
from liebig.train.objective import Objective
from liebig.train.precision import DTYPES, choose
from liebig.train.stage import MODEL, Data, TrainingStage

WORN_HEAD = (
    "WARNING: the starting model was trained for its vectors, and its masked-LM head may no longer fit its states. "
    "A masked language model is the better start for this objective."
)


class Pretraining(TrainingStage[PretrainConfig, Method]):
    """An encoder trained by the method of the recipe."""

    evaluated_on = "held-out text"

    def __init__(self, config: PretrainConfig, folder: Path, world: World) -> None:
        super().__init__(presets.resolve(config), folder, world)
        self.label = self.config.objective.kind
        self.say(", ".join(presets.describe_preset(config)))
        # One process compares hashes; the others would only read the same files again.
        self.stores = [TokenStore.open(store.path, hashes=world.first) for store in self.config.stores]
        self.tokenizer = find_tokenizer(self.config, self.stores)

    @property
    def keeps_best(self) -> bool:
        """Held-out masked words or partners are not retrieval, so by default the end of the run is kept."""
        return self.config.loop.best is not None or self.config.loop.patience is not None

    def start(self) -> Method:
        return start(self.config, self.tokenizer)

    def data(self, objective: Method) -> Data:
        self.say(objective.backbone.describe())
        for warning in objective.warnings():
            self.say(warning)
        if is_retriever(self.config) and self.config.objective.masks:
            self.say(WORN_HEAD)
        if left := left_out(self.config, objective):
            self.say(f"{left} of the starting model is not used: this objective trains the pooled states")
        return read(self.config, self.stores, self.tokenizer, self.world, self.say)

    def save(self, objective: Method) -> None:
        saved = objective.saved()
        encoder = Encoder(
            objective.backbone,
            self.tokenizer,
            pooling=saved.pooling,
            tail=saved.tail,
            max_length=use_length(self.config, objective.backbone),
            similarity=saved.similarity,
            layout=Layout(self.config.title_rule(), trained_length=self.config.max_length),
        )
        encoder.save(self.folder / MODEL, heads=saved.heads)


def start(config: PretrainConfig, tokenizer: Tokenizer) -> Method:
    """The method on the starting model with the heads it came with; what is fresh is a function of the seed."""
    backbone = make_backbone(config.model, tokenizer, config.seed)
    if config.max_length > backbone.max_positions:
        raise RecipeError(
            f"max_length = {config.max_length} is more than the model's {backbone.max_positions} positions",
            fix=f"set max_length = {backbone.max_positions}",
        )
    use_length(config, backbone)
    if config.dropout is not None:
        backbone.set_dropout(config.dropout)
    folder = config.start_folder()
    heads = {} if folder is None else load_heads(folder, backbone, head_classes())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(key(config.seed, 1) >> 1))
        return methods()[config.objective.kind].build(config, backbone, MethodStart(tokenizer, folder, heads))


def use_length(config: PretrainConfig, backbone: Backbone) -> int:
    """Tokens of a text when the model is used, whatever the length of the views it learns from.

    A start brings its own, up to 512. A new model has learned no positions past its views.
    """
    positions = backbone.max_positions
    if config.use_length is not None:
        return checked_length(config.use_length, positions, "use_length")
    folder = config.start_folder()
    if folder is None:
        return min(positions, config.max_length)
    own = (length_of_use(folder) if has_tokenizer(folder) else None) or positions
    return min(positions, max(config.max_length, min(own, LONGEST_USE)))


def is_retriever(config: PretrainConfig) -> bool:
    """Whether something follows the pooling in the starting folder: then it was trained for its vectors."""
    folder = config.start_folder()
    return folder is not None and (folder / "modules.json").is_file() and len(read_modules(folder)) > 2


def left_out(config: PretrainConfig, method: Method) -> str:
    """What the starting folder has behind its pooling that this objective does not train."""
    folder = config.start_folder()
    if method.saved().tail or folder is None or not (folder / "modules.json").is_file():
        return ""
    return " and ".join(path.name for name, path in read_modules(folder)[2:] if name == "Dense")


def find_tokenizer(config: PretrainConfig, stores: Sequence[TokenStore]) -> Tokenizer:
    """The tokenizer of the stores, or the one named, or the model's; all that are there must be the same."""
    folder = config.tokenizer or config.start_folder()
    folders = [folder] if folder is not None and (config.tokenizer or has_tokenizer(folder)) else []
    tokenizers = {store.path: store.tokenizer for store in stores}
    tokenizers |= {path: Tokenizer.from_folder(path) for path in folders}
    if not tokenizers:
        raise RecipeError(
            "a new model on pairs of a collection needs a tokenizer", fix="name its folder: tokenizer = ..."
        )
    (first, tokenizer), *others = tokenizers.items()
    for path, other in others:
        if other.digest != tokenizer.digest:
            raise RecipeError(
                f"{first} and {path} have different tokenizers",
                fix="prepare every store with the tokenizer of the model",
            )
    return tokenizer


def read(
    config: PretrainConfig,
    stores: Sequence[TokenStore],
    tokenizer: Tokenizer,
    world: World,
    say: Callable[[str], None],
) -> Data:
    """Sources, what is held out of them, and the batches of both."""
    opened = sources.build(config, stores, tokenizer)
    for one in opened:
        skipped = f", {one.skipped:,} documents too short and skipped" if one.skipped else ""
        say(f"{one.name}: {len(one.source):,} examples, {one.share:.0%} of the training{skipped}")
    kept, held = sources.divide(opened, config.evaluation.share)
    size = batch_size(config, kept)
    shape = config.objective.shape(tokenizer)
    per = config.mix or "batch"
    rows = sources.batches(kept, size, config.seed, per)
    say(f"batches of {size:,} examples, about {quantity(size * sources.tokens_per_example(kept))} tokens")
    extras = config.objective.extras
    evaluation = _evaluation(config, held, size, shape, world, extras)
    if evaluation is None:
        say(
            f"no evaluation: evaluation.share = {config.evaluation.share:g} holds out too little text for a batch"
        )
    epochs = Epochs(sources.epoch_steps(kept, size))
    return Data(Maker(rows, shape, world, extras), epochs, evaluation, batch_size=size)


def batch_size(config: PretrainConfig, kept: Sequence[sources.Weighted]) -> int:
    """Examples in a batch: loop.batch, or as many as come near batch_tokens."""
    if config.batch_tokens is None:
        return config.loop.batch
    return max(1, round(config.batch_tokens / sources.tokens_per_example(kept)))


def _evaluation(
    config: PretrainConfig,
    held: Sequence[sources.Weighted],
    size: int,
    shape: Shape,
    world: World,
    extras: frozenset[str],
) -> Callable[[Objective], Mapping[str, float]] | None:
    smallest = min((len(one.source) for one in held), default=0)
    fitting = min(size, smallest)
    if fitting < max(world.size, 1 if config.objective.negatives == "none" else 2):
        return None
    # A fixed seed: runs with other seeds are evaluated on the same masks and pairs of what they hold out.
    make = Maker(sources.batches(held, fitting, 0, config.mix or "batch"), shape, world, extras)
    batches = min(config.evaluation.batches, max(1, smallest // fitting))
    dtype = DTYPES[choose(config.loop.precision, world.device)]
    return lambda objective: evaluate(objective, make, batches, world, dtype)


def run(config: PretrainConfig, folder: Folder) -> None:
    Pretraining.launch(config, folder)


STAGE = Stage(
    "pretrain",
    PretrainConfig,
    run,
    "liebig pretrain recipe.toml objective.kind=condenser loop.minutes=30 --out runs/condenser",
)
