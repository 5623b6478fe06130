"""A retriever's folder of a few documents, and servers around it that really listen."""

import contextlib
import functools
import json
import threading
import time

import httpx
import pytest

pytest.importorskip("fastapi")

from liebig.base import pipeline
from liebig.search.retriever import Retriever
from liebig.search.retriever_folder import RetrieverDescription, write
from liebig.serve.engine import ServingEngine
from liebig.serve.middleware import Limits
from liebig.serve.routes import make_app
from liebig.serve.server import listen, make_server
from liebig.stages import STAGES

DOCUMENTS = {
    "plants/barley": ("Barley", "en", [
        ("Growth", [
            "The growth of barley is limited by the scarcest nutrient of the soil. More of the rest is no help.",
            "A field that lacks potash stays poor, however much nitrogen it is given."]),
        ("Harvest", ["Nitrogen, phosphorus and potassium are taken from the ground by every harvest."]),
    ]),
    "steam": ("Steam engines", "en", [
        ("", ["A steam engine turns the pressure of hot vapour into motion.",
              "James Watt added a separate condenser, which saved three quarters of the fuel."]),
    ]),
    "comet": ("Comets", "de", [
        ("", ["A comet is a small body of ice and dust that grows a tail near the sun.",
              "Halley's comet returns every seventy-six years, <b>bright</b> & early."]),
    ]),
    "violin": ("Violins", "de", [
        ("", ["The violin has four strings tuned in perfect fifths.", "Its bow is strung with the hair of a horse."]),
    ]),
}  # fmt: skip


def write_collection(folder, documents):
    """Documents with sections and metadata, and a passage for each paragraph."""
    folder.mkdir(parents=True)
    rows, passages = [], []
    for id, (title, language, sections, *more) in documents.items():
        made = [{"heading": heading, "paragraphs": texts} for heading, texts in sections]
        metadata = {"language": language, **(more[0] if more else {})}
        rows.append({"id": id, "title": title, "sections": made, "metadata": metadata})
        texts = [text for _, some in sections for text in some]
        passages += [
            {"id": f"{id}#{i}", "title": title, "text": text, "doc": id} for i, text in enumerate(texts)
        ]
    for name, lines in (("documents", rows), ("passages", passages)):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")


def add_generation(out, documents, generation, model):
    """Stages of one generation, and a retriever.json that points to them."""
    names = {part: f"{part}-{generation}" for part in ("collection", "bm25", "index")}
    write_collection(out / names["collection"], documents)
    recipe = {
        names["bm25"]: {"kind": "bm25", "collection": str(out / names["collection"])},
        names["index"]: {
            "kind": "encode",
            "source": str(out / names["collection"]),
            "model": str(model),
        },
    }
    pipeline.run(pipeline.plan_stages(STAGES, recipe, out), lambda line: None)
    if not (out / "model").exists():
        (out / "model").symlink_to(model)
    write(out, RetrieverDescription(generation, "hybrid", **names, model="model", weight=0.5))


def until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


@contextlib.contextmanager
def running(retriever, limits=None, token=None, more=None, servers=None, **engine):
    """A server in a thread, on a port of its own; gives its address, and adds itself to `servers`."""
    limits = limits or Limits()
    made = ServingEngine(retriever, limits, **engine)
    app = make_app(made, token=token, more=[] if more is None else [more(made)])
    listening, ready = listen("127.0.0.1", 0), threading.Event()
    server = make_server(app, limits, ready.set)
    if servers is not None:
        servers.append(server)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        assert ready.wait(60), "the server did not start"
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)
        listening.close()


@pytest.fixture(name="until")
def waits():
    """Waits until a condition holds."""
    return until


@pytest.fixture(autouse=True)
def patient_clients(monkeypatch):
    """A request to a busy machine may take longer than the five seconds that httpx waits."""
    for name in ("get", "post"):
        monkeypatch.setattr(httpx, name, functools.partial(getattr(httpx, name), timeout=60))


@pytest.fixture(scope="session")
def new_generation(small_model):
    """Writes another generation of a folder."""
    return functools.partial(add_generation, model=small_model)


@pytest.fixture(scope="session")
def folder(new_generation, tmp_path_factory):
    out = tmp_path_factory.mktemp("serve") / "notes"
    new_generation(out, DOCUMENTS, 1)
    return out


@pytest.fixture(scope="session")
def retriever(folder):
    return Retriever.from_folder(folder)


@pytest.fixture(scope="session")
def serving():
    """Starts servers with limits, tokens and rerankers of a test's own."""
    return running


@pytest.fixture(scope="session")
def server(retriever):
    with running(retriever) as address:
        yield address


@pytest.fixture
def client(server):
    with httpx.Client(base_url=server, timeout=30) as made:
        yield made
