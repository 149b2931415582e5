"""TabularNCAClassifier and TabularNCARegressor: losses and votes against loops, tables in, rows that come and go, intervals."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_diabetes, make_moons
from sklearn.metrics import log_loss as sklearn_log_loss

from nearkin.estimators import (
    LMNN,
    NeighborhoodClassifier,
    NeighborhoodRegressor,
    TabularNCAClassifier,
    TabularNCARegressor,
)
from nearkin.evaluate import expected_calibration_error
from nearkin.models.tabular import NumberScaling, TabularEncoder, _Waves
from nearkin.search.soft_neighbors import Votes, affinities, log_loss, soft_mean, squared_error
from nearkin.train.tabular import TEMPERATURES, Schedule, members_for, split_rows

FAST: dict[str, Any] = {"learning_rate": 0.01, "n_members": 1, "epochs": 8, "n_components": 8, "hidden": 16, "random_state": 0}


def rows(n: int = 300) -> tuple[dict[str, Any], np.ndarray]:
    """A class that depends on a number, a category and whether a cell is missing."""
    generator = np.random.default_rng(0)
    size, job = generator.normal(size=n), generator.choice(["cook", "smith"], n)
    wage = np.where(generator.random(n) < 0.3, np.nan, generator.lognormal(size=n))
    y = np.where((size > 0) ^ (job == "cook") ^ np.isnan(wage), "yes", "no")
    return {"size": size, "job": job, "wage": wage}, y


@pytest.mark.parametrize("distance", ["euclidean", "squared_euclidean"])
def test_log_loss_and_vote_equal_the_equation_as_a_loop(distance: str) -> None:
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(7, 3, generator=generator, dtype=torch.float64)
    classes, weights = torch.tensor([0, 0, 1, 1, 1, 2, 0]), torch.rand(7, generator=generator, dtype=torch.float64) + 0.5
    affinity = affinities(z[:3], z, distance, 0.7) + weights.log()
    affinity = affinity.masked_fill(torch.eye(3, 7, dtype=torch.bool), -torch.inf)
    lost = []
    for i in range(3):
        away = [math.dist(z[i], z[j]) for j in range(7)]
        votes = [
            0 if i == j else float(weights[j]) * math.exp(-(d if distance == "euclidean" else d * d) / 0.7) for j, d in enumerate(away)
        ]
        lost.append(-math.log(sum(v for j, v in enumerate(votes) if classes[j] == classes[i]) / sum(votes)))
    expected = sum(lost[i] * float(weights[i]) for i in range(3)) / float(weights[:3].sum())
    assert float(log_loss(affinity, classes[:3], classes, weights[:3])) == pytest.approx(expected)
    targets = torch.eye(3, dtype=torch.float64)[classes]
    found = soft_mean(z[:3], Votes(z, targets, weights.log()), distance, 0.7, torch.arange(3))
    assert -found.gather(1, classes[:3, None])[:, 0].log() == pytest.approx(torch.tensor(lost, dtype=torch.float64))
    soft = torch.softmax(affinity, 1) @ targets
    errors = (soft - targets[:3]).square().mean(1)
    assert float(squared_error(affinity, targets[:3], targets, weights[:3])) == pytest.approx(
        float((errors * weights[:3]).sum() / weights[:3].sum())
    )


def test_the_loss_of_a_far_positive_is_finite_and_has_a_gradient() -> None:
    z = torch.tensor([[0.0], [0.5], [5000.0]], requires_grad=True)
    affinity = affinities(z[:1], z, "euclidean", 1.0).masked_fill(torch.tensor([[True, False, False]]), -torch.inf)
    loss = log_loss(affinity, torch.tensor([0]), torch.tensor([0, 1, 0]), torch.ones(1))
    loss.backward()
    assert float(loss.detach()) == pytest.approx(4999.5) and bool(torch.isfinite(z.grad).all())  # type: ignore[arg-type]


def test_a_row_without_another_of_its_class_is_skipped() -> None:
    affinity = torch.zeros(2, 3, requires_grad=True)
    loss = log_loss(affinity, torch.tensor([0, 9]), torch.tensor([0, 0, 1]), torch.ones(2))
    assert float(loss.detach()) == pytest.approx(math.log(1.5))


def test_quantile_scaling_ignores_units_and_outliers() -> None:
    x = np.random.default_rng(0).normal(size=(500, 1))
    plain, bent = NumberScaling.fitted(x), NumberScaling.fitted(np.exp(5 * x))
    assert plain(x) == pytest.approx(bent(np.exp(5 * x)))
    assert abs(plain(x).mean()) < 0.01 and plain(x).std() == pytest.approx(1, abs=0.02)
    assert plain(np.array([[1e9]])) == pytest.approx(plain(x).max())
    standard = NumberScaling.fitted(x, "standard")(x)
    assert standard.mean() == pytest.approx(0, abs=1e-9) and standard.std() == pytest.approx(1)
    assert np.median(NumberScaling.fitted(x, "robust")(x)) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("number_embedding", ["periodic", "piecewise", "none"])
def test_an_unseen_category_is_embedded_between_the_known_ones(number_embedding: Any) -> None:
    encoder = TabularEncoder(1, (2, 50), 4, number_embedding=number_embedding, blocks=0)
    found = encoder(torch.zeros(3, 1), torch.tensor([[0, 0], [1, 1], [2, 2]]))
    assert bool(torch.isfinite(found).all()) and not torch.allclose(found[0], found[1])


def test_held_out_rows_have_every_class_and_no_lonely_row() -> None:
    classes = np.array([0] * 80 + [1] * 40 + [2])
    training, held = split_rows(classes, 121, 0.25, 0)
    assert np.bincount(classes[held], minlength=3).tolist() == [20, 10, 0]
    assert sorted([*training, *held]) == list(range(121))
    assert len(split_rows(None, 10, 0.15, 0)[1]) == 0  # two rows tell nothing


def test_a_table_of_pyarrow_is_a_frame() -> None:
    arrow = pytest.importorskip("pyarrow")
    table, y = rows(80)
    given = arrow.table({name: arrow.array(cells, from_pandas=True) for name, cells in table.items()})
    model = TabularNCAClassifier(**FAST).fit(given, arrow.array(y))
    frame = pytest.importorskip("pandas").DataFrame(table)
    assert model.schema_ == TabularNCAClassifier(**FAST).fit(frame, y).schema_ and list(model.feature_names_in_) == list(table)
    np.testing.assert_array_equal(model.predict_proba(given), model.predict_proba(frame))
    assert model.add_rows(given.slice(0, 3), arrow.array(y[:3])).n_rows_ == 83


def test_whole_numbers_of_128_bits_are_read() -> None:
    polars = pytest.importorskip("polars")
    table, y = rows(80)
    count = (np.arange(80) * 7 % 13).tolist()
    wide = polars.Series([None, *count[1:]], dtype=polars.Int128)
    model = TabularNCAClassifier(**FAST).fit(polars.DataFrame({"size": table["size"], "count": wide}), y)
    usual = TabularNCAClassifier(**FAST).fit(polars.DataFrame({"size": table["size"], "count": wide.cast(polars.Int64)}), y)
    assert model.schema_ == usual.schema_ and model.schema_.described() == "size   number\ncount  number, some missing"
    classes = polars.Series([at % 2 for at in count], dtype=polars.Int128)
    assert TabularNCAClassifier(**FAST).fit(polars.DataFrame(table), classes).classes_.tolist() == [0, 1]


@pytest.mark.parametrize("form", ["pandas", "polars"])
def test_frames_with_categories_and_missing_cells_are_learned(form: str) -> None:
    frame = pytest.importorskip(form).DataFrame
    table, y = rows(600)
    model = TabularNCAClassifier(**{**FAST, "epochs": 25}).fit(frame({name: cells[:500] for name, cells in table.items()}), y[:500])
    assert [column.kind for column in model.schema_.columns] == ["number", "category", "number"]
    assert model.score(frame({name: cells[500:] for name, cells in table.items()}), y[500:]) > 0.85
    unseen = frame({"size": [0.1], "job": ["pilot"], "wage": [None]})
    assert model.predict_proba(unseen).sum() == pytest.approx(1)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame({"size": [0.1], "job": ["cook"]}))
    with pytest.raises(ValueError, match="'size' was a number in training, and now holds 'big'"):
        model.predict(frame({"size": ["big"], "job": ["cook"], "wage": [1.0]}))


def test_moons_are_learned_better_than_chance_with_calibrated_shares() -> None:
    x, y = make_moons(600, noise=0.15, random_state=0)
    model = TabularNCAClassifier(**{**FAST, "epochs": 15}).fit(x[:400], y[:400])
    assert model.score(x[400:], y[400:]) > 0.95
    assert sklearn_log_loss(y[400:], model.predict_proba(x[400:])) < 0.2
    sure = model.add_rows(np.repeat(x[:1], 100_000, 0), np.repeat(y[:1], 100_000)).predict_proba(x)
    assert sure.max() <= 1 and sure.sum(1) == pytest.approx(1)


def test_neighbors_of_the_training_rows_are_others() -> None:
    x, y = make_moons(60, noise=0.1, random_state=0)
    model = TabularNCAClassifier(**FAST).fit(x, y)
    distances, positions = model.kneighbors(n_neighbors=2)
    all_distances, all_positions = model.kneighbors(x, 60)
    for row in range(60):
        others = all_positions[row] != row
        assert np.allclose(np.sort(all_distances[row][others])[:2], distances[row], atol=1e-6) and row not in positions[row]
    assert model.kneighbors(n_neighbors=500, return_distance=False).shape == (60, 59)


def test_neighbors_explain_a_prediction_by_their_rows() -> None:
    pandas = pytest.importorskip("pandas")
    table, y = rows()
    model = TabularNCAClassifier(**FAST).fit(pandas.DataFrame(table), y)
    query = pandas.DataFrame(table).iloc[:2]
    distances, positions = model.kneighbors(query, 3)
    assert distances[0, 0] == pytest.approx(0, abs=1e-6) and positions[0, 0] == 0
    told = model.explain(query, 300)
    assert told[0][0].row == {
        "size": table["size"][0],
        "job": str(table["job"][0]),
        "wage": None if np.isnan(table["wage"][0]) else table["wage"][0],
    }
    assert sum(one.share for one in told[0]) == pytest.approx(1)
    share = sum(one.share for one in told[0] if one.target == "yes")
    assert share == pytest.approx(model.predict_proba(query)[0, 1])


def test_rows_added_and_removed_change_predictions_without_training() -> None:
    x, y = make_moons(200, noise=0.1, random_state=0)
    model = TabularNCAClassifier(**FAST).fit(x, y)
    before = model.predict_proba(x[:5])
    model.add_rows(np.repeat(x[:1], 500, 0), np.repeat(1 - y[:1], 500))
    assert model.n_rows_ == 700 and model.predict(x[:1])[0] == 1 - y[0]
    model.remove_rows(range(200, 700))
    assert model.predict_proba(x[:5]) == pytest.approx(before)
    with pytest.raises(ValueError, match="classes that training did not have: 7"):
        model.add_rows(x[:1], [7])
    with pytest.raises(ValueError, match="must be rows from 0 to 199"):
        model.remove_rows([200])
    with pytest.raises(ValueError, match="none would be left"):
        model.remove_rows(range(200))
    with pytest.raises(ValueError, match="must be whole numbers, or 200 booleans, one for each row"):
        model.remove_rows([0.0, 1.0])
    with pytest.raises(ValueError, match="must be whole numbers, or 200 booleans"):
        model.remove_rows([True, False])
    left = np.arange(200) >= 150
    expected = TabularNCAClassifier(**FAST).fit(x, y).remove_rows(np.flatnonzero(left)).predict_proba(x[:5])
    assert np.array_equal(model.remove_rows(left).predict_proba(x[:5]), expected) and model.n_rows_ == 150


def test_rows_that_are_added_are_weighed_as_the_training_rows_were() -> None:
    x, y = make_moons(100, noise=0.1, random_state=0)
    one, ten = (TabularNCAClassifier(**FAST).fit(x, y, sample_weight=np.full(100, weight)) for weight in (1.0, 10.0))
    one.add_rows(x[:50], 1 - y[:50], sample_weight=np.full(50, 1.0))
    ten.add_rows(x[:50], 1 - y[:50], sample_weight=np.full(50, 10.0))
    assert ten.predict_proba(x) == pytest.approx(one.predict_proba(x))
    plain = TabularNCAClassifier(**FAST).fit(x, y).add_rows(x[:50], 1 - y[:50])
    assert plain.predict_proba(x) == pytest.approx(one.predict_proba(x))


def test_a_device_that_is_not_there_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match="device 'nowhere' cannot be used here .*; use cpu, or leave it out"):
        TabularNCAClassifier(**{**FAST, "device": "nowhere"}).fit(np.eye(4), [0, 1, 0, 1])


def test_members_are_averaged_and_a_seed_repeats_a_fit() -> None:
    x, y = make_moons(200, noise=0.3, random_state=0)
    both = TabularNCAClassifier(**{**FAST, "n_members": 2}).fit(x, y)
    votes = both._soft_means(both._embedded(x[:5])).numpy()
    assert both.predict_proba(x[:5]) == pytest.approx(votes.mean(0)) and not np.allclose(votes[0], votes[1])
    again = TabularNCAClassifier(**{**FAST, "n_members": 2}).fit(x, y)
    assert np.array_equal(both.predict_proba(x), again.predict_proba(x))
    assert both.embed(x[:2]).shape == (2, 16)


def test_weights_count_in_the_vote() -> None:
    x, y = make_moons(200, noise=0.4, random_state=0)
    plain, heavy = (TabularNCAClassifier(**FAST).fit(x, y, w) for w in (None, np.where(y == 1, 5.0, 1.0)))
    assert heavy.predict_proba(x)[:, 1].mean() > plain.predict_proba(x)[:, 1].mean() + 0.05
    rare = np.flatnonzero((y == 0) | (np.arange(200) % 5 == 0))
    model, balanced = (TabularNCAClassifier(**FAST, class_weight=w).fit(x[rare], y[rare]) for w in (None, "balanced"))
    assert (balanced.predict(x) == 1).sum() > (model.predict(x) == 1).sum()


def test_regression_beats_the_mean_and_its_intervals_hold_their_share() -> None:
    generator = np.random.default_rng(0)
    x = generator.uniform(-2, 2, (1500, 3))
    y = 100 * np.sin(2 * x[:, 0]) + 50 * x[:, 1] + 10 * (1 + np.abs(x[:, 2])) * generator.normal(size=1500)
    model = TabularNCARegressor(**{**FAST, "epochs": 15}).fit(x[:1000], y[:1000])
    assert model.score(x[1000:], y[1000:]) > 0.85
    ends = model.predict_interval(x[1000:], 0.8)
    held = ((ends[:, 0] <= y[1000:]) & (y[1000:] <= ends[:, 1])).mean()
    assert 0.72 < held < 0.88
    two = TabularNCARegressor(**FAST).fit(x[:300], np.stack([y[:300], -y[:300]], 1))
    assert two.predict(x[:4]).shape == (4, 2) and two.predict_interval(x[:4]).shape == (4, 2, 2)
    with pytest.warns(UserWarning, match="coverage 0.999 needs 999 held-out rows, and .* the intervals are infinite"):
        assert np.isinf(model.predict_interval(x[:4], 0.999)).all()


def test_large_units_and_skewed_targets_stay_finite() -> None:
    x, y = load_diabetes(return_X_y=True)
    skewed = np.exp(y / 20) * 1e6
    model = TabularNCARegressor(**FAST).fit(x, skewed)
    assert np.isfinite(model.predict(x)).all() and all(np.isfinite(model.loss_curves_[0]))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"distance": "manhattan"}, "distance 'manhattan' is unknown"),
        ({"scaling": "none"}, "scaling 'none' is unknown"),
        ({"number_embedding": "fourier"}, "number_embedding 'fourier' is unknown"),
        ({"temperature": 0}, "temperature"),
        ({"n_members": 0}, "n_members"),
        ({"held_out": 1.0}, "held_out"),
        ({"weight_decay": -1}, r"weight_decay \(-1\)"),
        ({"class_weight": {0: 1, 1: -3}}, r"class_weight of 1 \(-3\) must be a finite number of at least 0"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, Any], said: str) -> None:
    x, y = make_moons(40, random_state=0)
    with pytest.raises(ValueError, match=said):
        TabularNCAClassifier(**{**FAST, **settings}).fit(x, y)


def test_bad_targets_are_named() -> None:
    x, y = make_moons(40, random_state=0)
    labels = np.array([None, *y[1:]], dtype=object)
    with pytest.raises(ValueError, match=r"in 1 rows, first in \[0\]"):
        TabularNCAClassifier(**FAST).fit(x, labels)
    with pytest.raises(ValueError, match="infinity"):
        TabularNCARegressor(**FAST).fit(x, np.where(y, np.inf, 0.0))
    with pytest.raises(ValueError, match="y holds numbers as large as 1e.300, whose squares overflow; divide them"):
        TabularNCARegressor(**FAST).fit(x, np.where(y, 1e300, 0.0))
    with pytest.raises(ValueError, match="no rows were held out"):
        TabularNCARegressor(**{**FAST, "held_out": 0}).fit(x, y).predict_interval(x)


@pytest.mark.parametrize("form", ["array", "list", "pandas", "polars"])
@pytest.mark.parametrize("what", ["dates", "durations"])
def test_dates_and_durations_as_targets_are_refused_by_name(what: str, form: str) -> None:
    x = np.arange(40.0).reshape(20, 2)
    days = np.arange(20) % 4 * np.timedelta64(1, "D")
    y: Any = (days + np.datetime64("2024-03-01")).astype("M8[us]") if what == "dates" else days.astype("m8[us]")
    classes = y.astype(str)
    if form in ("pandas", "polars"):
        y = pytest.importorskip(form).Series(y)
    y = list(y) if form == "list" else y
    estimators = (TabularNCAClassifier, TabularNCARegressor, NeighborhoodClassifier, NeighborhoodRegressor, LMNN)
    for made in estimators:
        with pytest.raises(ValueError, match=rf"y holds {what} \(.*\); make them numbers, such as days .*, or for classes texts"):
            made().fit(x, y)
    model = TabularNCARegressor(epochs=1, n_members=1).fit(x, days.astype(float))
    with pytest.raises(ValueError, match=f"y holds {what}"):
        model.add_rows(x, y)
    assert len(TabularNCAClassifier(epochs=1, n_members=1).fit(x, classes).classes_) == 4


def test_ten_rows_and_a_class_of_one_row_are_fitted(capsys: pytest.CaptureFixture[str]) -> None:
    x = np.random.default_rng(0).normal(size=(10, 2))
    model = TabularNCAClassifier(**{**FAST, "verbose": 1}).fit(x, [0] * 5 + [1] * 4 + [2])
    assert model.predict(x[9:])[0] in (0, 1, 2) and len(model.loss_curves_[0]) == 8
    assert "epoch 8 of at most 8: loss" in capsys.readouterr().out


def test_a_warm_start_continues_from_the_weights_before() -> None:
    x, y = make_moons(300, noise=0.15, random_state=0)
    model = TabularNCAClassifier(**{**FAST, "epochs": 6, "warm_start": True}).fit(x, y)
    first = model.loss_curves_[0]
    assert model.fit(x, y).loss_curves_[0][0] < first[0]
    cold = TabularNCAClassifier(**{**FAST, "epochs": 6}).fit(x, y)
    assert cold.fit(x, y).loss_curves_[0] == first
    wider = model.fit(np.column_stack([x, x[:, 0] ** 2]), y)  # other columns: it starts anew
    assert wider.predict(np.column_stack([x, x[:, 0] ** 2])).shape == (300,)


def test_threads_are_those_asked_for_and_given_back() -> None:
    x, y = make_moons(60, random_state=0)
    before = torch.get_num_threads()
    one, all_of_them = (TabularNCAClassifier(**{**FAST, "n_jobs": jobs}).fit(x, y) for jobs in (1, -1))
    assert torch.get_num_threads() == before
    np.testing.assert_allclose(one.predict_proba(x), all_of_them.predict_proba(x), atol=0.05)  # sums are rounded in another order
    with pytest.raises(ValueError, match="n_jobs"):
        TabularNCAClassifier(**{**FAST, "n_jobs": 0}).fit(x, y)


def test_the_defaults_of_estimators_and_of_the_command_line_are_the_same() -> None:
    usual, schedule = TabularNCAClassifier(), Schedule()
    for name in ("distance", "temperature", "reference_share", "epochs", "patience", "learning_rate", "weight_decay"):
        assert getattr(usual, name) == getattr(schedule, name) == getattr(TabularNCARegressor(), name), name


def test_a_small_table_has_several_members_and_a_larger_one_has_one() -> None:
    assert members_for(2_500) == 4 and members_for(2_501) == 1
    x, y = make_moons(40, random_state=0)
    assert len(TabularNCAClassifier(**{**FAST, "epochs": 1, "n_members": None}).fit(x, y).members_) == 4


def test_held_out_rows_choose_a_temperature_that_calibrates() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(900, 2))
    y = (x[:, 0] + rng.normal(size=900) > 0).astype(int)  # a third of the rows cannot be known
    model = TabularNCAClassifier(**{**FAST, "epochs": 20}).fit(x[:600], y[:600])
    shares = model.predict_proba(x[600:])
    gap = expected_calibration_error(torch.from_numpy(shares.max(1)), torch.from_numpy(shares.argmax(1) == y[600:]))
    assert model.temperatures_[0] in [factor * model.temperature for factor in TEMPERATURES] and gap < 0.12


def test_waves_have_the_gradient_of_cosine_and_sine() -> None:
    angles = torch.randn(3, 2, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(_Waves.apply, (angles,))


@pytest.mark.soak
def test_intervals_cover_their_share_over_twenty_splits() -> None:
    covered = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        x = rng.uniform(-2, 2, (2500, 3))
        y = np.sin(2 * x[:, 0]) + x[:, 1] + 0.3 * (1 + np.abs(x[:, 2])) * rng.normal(size=2500)
        model = TabularNCARegressor(**{**FAST, "epochs": 10, "random_state": seed, "held_out": 0.3}).fit(x[:1500], y[:1500])
        low, high = model.predict_interval(x[1500:], 0.9).T
        covered.append(float(((low <= y[1500:]) & (y[1500:] <= high)).mean()))
    assert abs(np.mean(covered) - 0.9) < 0.01, covered


def test_the_best_epoch_is_the_one_whose_averaged_weights_are_kept() -> None:
    x, y = make_moons(300, noise=0.2, random_state=0)
    model = TabularNCAClassifier(**{**FAST, "epochs": 40, "patience": 3}).fit(x, y)
    curve = model.loss_curves_[0]
    assert len(curve) < 40 and len(curve) - 1 - int(np.argmin(curve)) == 3
