"""A small retriever, built from three documents."""

import json

import pytest

from liebig.builder.build import BuildConfig, build

TEXTS = {
    "barley": ("Barley", "1840", "Growth is limited by the scarcest\tnutrient.\n\nC:\\fields"),
    "steam": ("Steam", "1769", 'Watt\'s "separate condenser" saved fuel.'),
    "comet": ("Comets", "1066", "Ein Komet hat einen Schweif aus Staub, größer als die Sonne."),
}
DOCUMENTS = [{"id": id, "title": t, "year": year, "text": text} for id, (t, year, text) in TEXTS.items()]


@pytest.fixture(scope="session")
def built(small_model, tmp_path_factory):
    home = tmp_path_factory.mktemp("export")
    (home / "documents.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in DOCUMENTS), encoding="utf-8"
    )
    config = BuildConfig(sources=(str(home / "documents.jsonl"),), model=str(small_model), minutes=0)
    build(config, home / "out", lambda line: None)
    return home / "out"
