"""The table of pre-training methods: `objective.kind` and the class that implements it.

A method is one file of this folder and one line below. Another package adds methods through the entry point group
`liebig.methods`: the entry's name is the kind, its value `module:Class`, a subclass of `liebig.methods.base.Method`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Union

from pydantic import Field

from liebig.base import extensions
from liebig.base.errors import RecipeError
from liebig.base.mistakes import tag

if TYPE_CHECKING:
    from torch import nn

    from liebig.methods.base import Method

METHODS = {
    "mlm": "liebig.methods.mlm:MaskedLM",
    "condenser": "liebig.methods.condenser:Condenser",
    "cocondenser": "liebig.methods.cocondenser:CoCondenser",
    "cotmae": "liebig.methods.cotmae:CotMAE",
    "bow": "liebig.methods.bow:BagOfWords",
    "simclr": "liebig.methods.simclr:SimCLR",
    "moco": "liebig.methods.moco:MoCo",
    "vectors": "liebig.methods.teacher:TeacherVectors",
}
GROUP = "liebig.methods"


@cache
def methods() -> dict[str, type[Method]]:
    """Every method by its kind, those of other packages included."""
    from liebig.methods.base import Method
    from liebig.methods.finetune_base import FinetuneObjective
    from liebig.methods.samplers import Batching

    table = extensions.extended(METHODS, GROUP)
    classes = {kind: extensions.load(table, kind) for kind in table}
    # Packages add what fine-tuning can use to the same group (`finetuning.py`).
    finetuning = (FinetuneObjective, Batching)
    classes = {k: c for k, c in classes.items() if not (isinstance(c, type) and issubclass(c, finetuning))}
    for kind, method in classes.items():
        if not (isinstance(method, type) and issubclass(method, Method)) or tag(method.Config) != kind:
            raise RecipeError(
                f"the method {kind!r} ({table[kind]}) is not a Method whose Config has kind = {kind!r}",
                fix=f"in {table[kind]}, write: class Config(Method.Config): kind: Literal[{kind!r}] = {kind!r}",
            )
    return classes


def objective_union() -> Any:
    """The type of `PretrainConfig.objective`: the configs of all methods, told apart by `kind`."""
    configs = tuple(method.Config for method in methods().values())
    return Annotated[Union[configs], Field(discriminator="kind")]  # noqa: UP007, built at run time


def head_classes() -> dict[str, Callable[..., nn.Module]]:
    """The heads that model folders can hold, by the kind in their `heads.safetensors`."""
    return {kind: head for method in methods().values() for kind, head in method.head_classes.items()}
