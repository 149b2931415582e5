"""The estimators with networks: what they do beyond scikit-learn's own checks, and what they refuse."""

import pickle
import warnings

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_digits, load_iris, make_multilabel_classification
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

import nearkin
from nearkin import NCA, NeighborhoodClassifier, NeighborhoodEmbedding, NeighborhoodRegressor, NPair, WeightedSum

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 6))
Y = (X[:, 0] > 0) + 2 * (X[:, 1] > 0)  # four classes; four of six columns are noise


def short(kind=NeighborhoodEmbedding, **settings):
    return kind(**{"n_components": 3, "epochs": 5, "random_state": 0, **settings})


def test_training_finds_the_columns_that_matter():
    train, test = slice(0, 80), slice(80, None)
    plain = KNeighborsClassifier(5).fit(X[train], Y[train]).score(X[test], Y[test])
    model = NeighborhoodClassifier(n_components=2, random_state=0).fit(X[train], Y[train])
    assert model.score(X[test], Y[test]) > plain + 0.05
    assert len(model.loss_curve_) == 50 and model.loss_curve_[-1] < model.loss_curve_[0] / 2


@pytest.mark.parametrize(
    ("y", "supervision", "objective"),
    [
        (Y, "classes", "nca"),
        (np.array(["a", "b", "c", "d"])[Y], "classes", "nca"),
        (X[:, 0], "numbers", "nca_regression"),
        (X[:, :2], "numbers", "nca_regression"),
        (np.eye(4, dtype=int)[Y] | np.eye(4, dtype=int)[(Y + 1) % 4], "sets", "nca_of_sets"),
        (None, "ids", "instance_discrimination"),
    ],
)
def test_y_may_be_classes_numbers_sets_or_absent(y, supervision, objective):
    model = short().fit(X, y)
    assert (model.about_["supervision"], model.about_["objective"]) == (supervision, objective)
    assert model.transform(X).shape == (120, 3) and np.isfinite(model.transform(X)).all()


def test_whole_numbers_are_classes_unless_supervision_says_otherwise():
    years = RNG.integers(1990, 2020, size=120)
    assert short().fit(X, years).about_["supervision"] == "classes"
    with pytest.warns(
        UserWarning, match="y holds 60 different whole numbers in 120 rows, and they are used as classes; pass supervision='numbers'"
    ):
        short().fit(X, np.arange(120.0) // 2)
    assert short(supervision="numbers").fit(X, years).about_["supervision"] == "numbers"
    assert short(supervision="ids").fit(X, years).about_["supervision"] == "ids"
    two = np.stack([years, years + 1], 1)
    with pytest.raises(ValueError, match=r"y has 2 columns of whole numbers; pass supervision='numbers'"):
        short().fit(X, two)
    assert short(supervision="numbers").fit(X, two).targets_.labels.shape == (120, 2)


def test_targets_in_other_units_give_the_same_embedding():
    a, b = short().fit(X, X[:, 0]), short().fit(X, 1e6 + 1e3 * X[:, 0])
    np.testing.assert_allclose(a.transform(X), b.transform(X), atol=1e-3)


def test_numpy_gives_numpy_and_torch_gives_torch():
    x, y = torch.from_numpy(X), torch.from_numpy(Y)
    model = short(NeighborhoodClassifier).fit(x, y)
    assert np.array_equal(model.predict(x).numpy(), model.predict(X)) and isinstance(model.predict(X), np.ndarray)
    distances, positions = model.kneighbors(x)
    assert isinstance(distances, torch.Tensor) and isinstance(positions, torch.Tensor) and distances.dtype == torch.float64
    embedding = short().fit(x, y)
    assert embedding.transform(x.float()).dtype == torch.float32 and embedding.transform(X).dtype == np.float64
    names = short(NeighborhoodClassifier).fit(x, np.array(["a", "b", "c", "d"])[Y])
    assert set(names.predict(x)) <= {"a", "b", "c", "d"}


@pytest.mark.parametrize("objective", ["nca", "precision_at_k"])  # squared distances and cosines
def test_neighbors_without_x_are_the_training_rows_without_self(objective):
    doubled = np.repeat(X[:40], 2, axis=0)  # the copy is the nearest neighbor and has another id
    model = short(NeighborhoodClassifier, objective=objective).fit(doubled, np.repeat(Y[:40], 2))
    distances, positions = model.kneighbors(n_neighbors=3)
    assert positions.shape == (80, 3) and not (positions == np.arange(80)[:, None]).any()
    assert np.array_equal(positions[:, 0], np.arange(80) ^ 1)
    np.testing.assert_allclose(distances[:, 0], 0, atol=1e-6)
    assert (np.diff(distances, axis=1) >= -1e-9).all()
    given = model.kneighbors(doubled, 1, return_distance=False)
    assert np.array_equal(given[:, 0] // 2, np.arange(80) // 2)
    assert model.kneighbors(n_neighbors=500, return_distance=False).shape == (80, 79)


def test_neighbors_are_those_of_the_embedding():
    model = short().fit(X, Y)
    z = model.transform(X)
    distances = np.linalg.norm(z[:, None] - z[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    found, positions = model.kneighbors(n_neighbors=1)
    assert np.array_equal(positions[:, 0], distances.argmin(1))
    np.testing.assert_allclose(found[:, 0], distances.min(1), atol=1e-6)


def test_probabilities_are_shares_of_neighbors():
    model = short(NeighborhoodClassifier, n_neighbors=4, weights="uniform").fit(X, Y)
    shares, positions = model.predict_proba(X), model.kneighbors(X, return_distance=False)
    for row, found in zip(shares, positions, strict=True):
        assert row.tolist() == [np.mean(Y[found] == c) for c in range(4)]
    assert np.array_equal(model.predict(X), model.classes_[shares.argmax(1)])
    two = short(NeighborhoodClassifier).fit(X, Y % 2)
    np.testing.assert_allclose(two.decision_function(X), two.predict_proba(X)[:, 1] - 0.5)
    np.testing.assert_allclose(model.decision_function(X), shares)


def test_probabilities_are_soft_votes_of_all_rows_by_default():
    model = short(NeighborhoodClassifier).fit(X, Y)
    known, temperature = model.references_.embeddings.numpy(), model.about_["temperature"]
    for row, z in zip(model.predict_proba(X[:5]), known[:5], strict=True):
        votes = np.exp(-((known - z) ** 2).sum(1) / temperature)
        np.testing.assert_allclose(row, [votes[c == Y].sum() / votes.sum() for c in range(4)], rtol=1e-6)
    hard = short(NeighborhoodClassifier, weights="uniform").fit(X[::2], Y[::2])
    soft = short(NeighborhoodClassifier).fit(X[::2], Y[::2])
    assert log_loss(Y[1::2], soft.predict_proba(X[1::2])) < log_loss(Y[1::2], hard.predict_proba(X[1::2]))
    with pytest.raises(ValueError, match="weights 'hard' is unknown"):
        short(NeighborhoodClassifier, weights="hard").fit(X, Y)


def test_label_sets_are_predicted_label_by_label():
    x, sets = make_multilabel_classification(150, 8, n_classes=3, random_state=0)
    model = make_pipeline(StandardScaler(), short(NeighborhoodClassifier, epochs=20)).fit(x, sets)
    assert model.predict(x).shape == (150, 3) and (model.predict(x) == sets).mean() > 0.8
    shares = model.predict_proba(x)
    assert len(shares) == 3 and shares[0].shape == (150, 2)
    np.testing.assert_allclose(model.decision_function(x)[:, 0], shares[0][:, 1] - 0.5)


def test_numbers_are_predicted_by_the_mean_of_neighbors():
    targets = np.stack([X[:, 0], X[:, 1] * 3], 1)
    model = short(NeighborhoodRegressor, epochs=30).fit(X, targets)
    positions = model.kneighbors(X, return_distance=False)
    np.testing.assert_allclose(model.predict(X), targets[positions].mean(1))
    assert model.score(X, targets) > 0.7
    assert short(NeighborhoodRegressor).fit(X, X[:, 0]).predict(X).shape == (120,)


def test_pipeline_grid_search_cross_validation_and_clone():
    x, y = load_iris(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), short(epochs=10), KNeighborsClassifier(3))
    assert cross_val_score(pipeline, x, y, cv=3).mean() > 0.85
    search = GridSearchCV(short(NeighborhoodClassifier), {"n_components": [2, 4], "objective": ["nca", "softmax"]}, cv=2).fit(x, y)
    assert set(search.best_params_) == {"n_components", "objective"}
    copy = clone(short(objective=NCA(temperature=2.0)))
    assert copy.objective.affinity.temperature == 2.0 and not hasattr(copy, "network_")


def test_pandas_output():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcdef"))
    found = short().set_output(transform="pandas").fit(frame, Y).transform(frame)
    assert list(found.columns) == [f"neighborhoodembedding{i}" for i in range(3)] and found.index.equals(frame.index)


def test_the_seed_determines_the_fit_and_the_global_generator_is_unchanged():
    before = torch.get_rng_state()
    a, b, c = (short(random_state=seed).fit(X, Y).transform(X) for seed in (1, 1, 2))
    assert np.array_equal(a, b) and not np.array_equal(a, c)
    assert torch.equal(torch.get_rng_state(), before)


def test_fit_does_not_change_the_network_and_objective_passed_in():
    network, objective = nn.Linear(6, 4), NCA()
    weights = network.weight.detach().clone()
    model = short(network=network, objective=objective).fit(X, Y)
    assert torch.equal(network.weight, weights) and network.weight.dtype == torch.float32
    assert model.transform(X).shape == (120, 4) and model.get_feature_names_out().tolist()[-1] == "neighborhoodembedding3"


def test_a_weighted_sum_is_an_objective():
    both = WeightedSum({"nca": (1.0, NCA()), "npair": (0.5, NPair())})
    assert short(objective=both).fit(X, Y).transform(X).shape == (120, 3)


def hard_vote(model):
    """As `Model.predict(k=1)` does: one neighbor."""
    return model.set_params(n_neighbors=1, **({"weights": "uniform"} if "weights" in model.get_params() else {}))


@pytest.mark.parametrize("kind", ["classes", "numbers", "images"])
def test_a_model_folder_is_written_and_read_back(tmp_path, kind):
    if kind == "images":
        pixels, labels = load_digits(return_X_y=True)
        x, y = pixels[:200] / 16, labels[:200]
        model = short(NeighborhoodClassifier, image_shape=(1, 8, 8), epochs=2).fit(x, y)
        given = x.reshape(-1, 1, 8, 8).astype(np.float32)
    else:
        x, y = X, Y if kind == "classes" else X[:, :2]
        model = short(NeighborhoodClassifier if kind == "classes" else NeighborhoodRegressor).fit(x, y)
        given = x.astype(np.float32)
    model.save(tmp_path / "model")
    loaded = nearkin.load(tmp_path / "model", device="cpu")
    np.testing.assert_allclose(loaded.encode(given), model.references_.embeddings.numpy(), atol=1e-4)
    assert np.mean(np.isclose(loaded.predict(given, k=1, numbers=True), hard_vote(model).predict(x), atol=1e-5)) > 0.99
    assert (tmp_path / "model" / "run.json").exists()
    assert list(loaded.classes) == [str(c) for c in (model.classes_ if kind != "numbers" else [])]


def test_pickle_round_trip():
    model = short(NeighborhoodClassifier).fit(X, Y)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict(X), model.predict(X)) and np.array_equal(again.kneighbors()[1], model.kneighbors()[1])


def test_verbose_prints_every_epoch(capsys):
    short(verbose=1).fit(X, Y)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5 and lines[0].startswith("[NeighborhoodEmbedding] epoch 1 of 5: loss ")
    short().fit(X, Y)
    assert capsys.readouterr().out == ""


def test_regression_on_diabetes_beats_the_mean():
    x, y = load_diabetes(return_X_y=True)
    model = make_pipeline(StandardScaler(), NeighborhoodRegressor(20, epochs=15, random_state=0))
    assert cross_val_score(model, x, y, cv=3).mean() > 0.3


@pytest.mark.parametrize(
    ("settings", "y", "message"),
    [
        ({"epochs": 0}, Y, r"epochs \(0\) must be a whole number of at least 1"),
        ({"batch_size": 1}, Y, r"batch_size \(1\) must be a whole number of at least 2"),
        ({"learning_rate": 0}, Y, r"learning_rate \(0\) must be a finite number above 0"),
        ({"n_components": 0}, Y, r"n_components \(0\) must be a whole number"),
        ({"network": 3}, Y, r"network \(3\) must be the name of a network or a torch.nn.Module"),
        ({"network": "mpl"}, Y, r"network 'mpl' is unknown"),
        ({"objective": "ncaa"}, Y, r"objective 'ncaa' is unknown .did you mean 'nca'"),
        ({"objective": "nca"}, X[:, 0], r"objective nca learns from classes, and y holds numbers"),
        ({"supervision": "labels"}, Y, r"supervision 'labels' is unknown; choose one of auto, classes, numbers, sets, ids"),
        ({"supervision": "classes"}, None, r"supervision 'classes' needs y, and y is None"),
        ({"supervision": "sets"}, Y, r"supervision 'sets' needs a multi-hot y"),
        ({"image_shape": (1, 8, 8)}, Y, r"image_shape \(1, 8, 8\) needs 64 numbers per row, and X has 6"),
        ({}, np.zeros(120, int), r"y holds one class only \(.*0.*\)"),
        ({"network": nn.Flatten()}, Y, r"network Flatten has no parameters to train"),
        ({"network": nn.Sequential(nn.Linear(6, 6), nn.Unflatten(1, (2, 3)))}, Y, r"network gives shape \(2, 2, 3\) for two rows"),
    ],
)
def test_bad_parameters_are_refused(settings, y, message):
    with pytest.raises(ValueError, match=message):
        short(**settings).fit(X, y)


def test_bad_neighbors_and_folders_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"n_neighbors \(0\)"):
        short(NeighborhoodClassifier, n_neighbors=0).fit(X, Y)
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        short(NeighborhoodClassifier).fit(X, X[:, 0])
    with pytest.raises(ValueError, match="network is a module, which a model folder cannot rebuild"):
        short(network=nn.Linear(6, 2)).fit(X, Y).save(tmp_path)


def test_a_rare_class_is_learned_although_many_batches_lack_it():
    rare = np.zeros(120, dtype=int)
    rare[:3] = 1
    for objective in ("nca", "triplet", "npair"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # the schedule must not warn
            model = short(NeighborhoodClassifier, objective=objective, batch_size=8).fit(X, rare)
        assert np.isfinite(model.loss_curve_).all() and set(model.classes_) == {0, 1}
    unlucky = [short(batch_size=2, epochs=1, random_state=seed) for seed in range(20)]  # some seeds draw one class per batch
    with pytest.raises(ValueError, match=r"batch_size \(2\): every batch held one class only; use larger batches"):
        [model.fit(X[:4], [0, 0, 1, 1]) for model in unlucky]


@pytest.mark.parametrize("name", ["neighborhood_discovery", "deep_cluster", "noise_as_targets"])
def test_objectives_that_need_a_pass_between_epochs_are_refused(name):
    with pytest.raises(
        ValueError, match=f"objective {name} needs a pass over all points between epochs, which fit does not make; use `nearkin train`"
    ):
        short(objective=name).fit(X, Y)


def test_an_objective_may_be_named_as_its_class_is_written():
    assert short(objective="NCA").fit(X, Y).about_["objective"] == "nca"
    assert short(objective="ProxyNCA").fit(X, Y).about_["objective"] == "proxy_nca"
    with pytest.raises(
        ValueError, match=r"objective \(<class '.*NCA'>\) must be the name of one .*, or an objective that is built: NCA\(\)"
    ):
        short(objective=NCA).fit(X, Y)
