"""The linear estimators: what they find, what they warn about, what they refuse."""

import pickle
import warnings

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsClassifier, NeighborhoodComponentsAnalysis
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from nearkin import LMNN, MLKR, LinearNCA, LinearNCARegression, ProbabilisticPCA
from nearkin.estimators.linear.solve import solve
from nearkin.estimators.linear.start import starting_point
from tests.estimators.test_linear_losses import nca

RNG = np.random.default_rng(0)
X = RNG.normal(size=(90, 5))
Y = (X[:, 0] + 0.3 * X[:, 1] > 0).astype(int)
T = X[:, 0] + 0.3 * X[:, 1]
CLASSIFYING, REGRESSING = (LinearNCA, LMNN), (LinearNCARegression, MLKR)
ALL = CLASSIFYING + REGRESSING


def targets(kind):
    return Y if kind in CLASSIFYING else T


def settled(model, x=X, y=Y):
    """Fitted, whether it converged or not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(x, y)


def objective(x, y, a):
    return float(-nca(torch.from_numpy(a), torch.from_numpy(x), y)) / len(x)


@pytest.mark.parametrize("components", [1, 3])
def test_nca_ends_no_worse_than_scikit_learn(components):
    theirs = NeighborhoodComponentsAnalysis(components, max_iter=100).fit(X, Y)
    ours = settled(LinearNCA(components, max_iter=100))
    found = objective(X, Y, ours.components_)
    assert found >= objective(X, Y, theirs.components_) - 1e-3
    assert ours.loss_ == pytest.approx(1 - found, abs=1e-6)


def test_nca_of_digits_in_float32_ends_no_worse_than_scikit_learn():
    x, y = load_digits(return_X_y=True)
    x, y = x[:1030] / 16, y[:1030]  # enough for the float32 kernels
    theirs = NeighborhoodComponentsAnalysis(2, max_iter=10).fit(x, y)
    ours = settled(LinearNCA(2, max_iter=10), x, y)
    start = settled(LinearNCA(2, init=theirs.components_, max_iter=1), x, y)
    assert ours.loss_ < start.loss_ + 0.01


@pytest.mark.parametrize("solver", ["lbfgs", "conjugate_gradient"])
@pytest.mark.parametrize("kind", ALL)
def test_a_fit_finds_the_direction_that_matters(kind, solver):
    model = settled(kind(1, solver=solver, max_iter=100), X, targets(kind))
    direction = model.components_[0] / np.linalg.norm(model.components_[0])
    expected = np.array([1, 0.3, 0, 0, 0]) / np.linalg.norm([1, 0.3])
    assert abs(direction @ expected) > 0.95
    assert model.transform(X).shape == (90, 1) and model.n_iter_ > 1


@pytest.mark.parametrize("kind", ALL)
def test_order_shift_and_units_change_nothing(kind):
    order = RNG.permutation(90)
    model = settled(kind(2, init="identity", max_iter=15), X, targets(kind))
    for x, y in ((X[order], targets(kind)[order]), (X + 100, targets(kind))):
        again = settled(kind(2, init="identity", max_iter=15), x, y)
        assert again.loss_ == pytest.approx(model.loss_, rel=1e-3)
    if kind in REGRESSING:
        assert settled(kind(2, init="identity", max_iter=15), X, 1e4 * T - 7).loss_ == pytest.approx(model.loss_, rel=1e-6)


def test_targets_of_several_dimensions():
    targets = np.stack([X[:, 0], X[:, 1], X[:, 0] - X[:, 1]], 1)
    for kind in REGRESSING:
        model = settled(kind(2, max_iter=60), X, targets)
        plane = np.linalg.qr(model.components_.T)[0]
        assert np.linalg.norm(plane[:2]) > 0.97 * np.sqrt(2)  # both columns that matter, and no other


def test_mlkr_lets_errors_cancel_and_nca_regression_does_not():
    regression, kernel = (settled(kind(2, max_iter=60), X, T) for kind in REGRESSING)
    assert kernel.loss_ < regression.loss_ < 2


@pytest.mark.parametrize("kind", [LinearNCA, *REGRESSING])
@pytest.mark.parametrize("factor", [1e-6, 1e3])
def test_a_start_on_a_plateau_is_rescaled_with_a_warning(kind, factor):
    """scikit-learn's NCA on features x 1000: gradient 0, components unchanged, no warning."""
    x = X * factor
    with pytest.warns(UserWarning, match=r"the objective has no gradient; it was scaled by .* \(StandardScaler\)"):
        model = settled(kind(2, init="identity", max_iter=50), x, targets(kind))
    plain = settled(kind(2, init="identity", max_iter=50), X, targets(kind))
    assert model.n_iter_ > 1 and model.loss_ < plain.loss_ + 0.05
    assert np.abs(model.components_ * factor - np.eye(2, 5)).max() > 0.1


def test_scikit_learn_is_silent_on_that_plateau():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        theirs = NeighborhoodComponentsAnalysis(2, init="identity").fit(X * 1e4, Y)
    assert np.array_equal(theirs.components_, np.eye(2, 5))


def test_no_gradient_at_any_scale_warns():
    flat = np.repeat([[0.0, 1.0]], 8, axis=0)  # all points are one
    with pytest.warns(ConvergenceWarning, match="no gradient at the start, at any scale; try another init"):
        LinearNCA(1, init="identity").fit(flat, [0, 1] * 4)


def test_a_perfect_start_is_no_plateau():
    x = np.concatenate([RNG.normal(size=(20, 2)), RNG.normal(size=(20, 2)) + 50])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = LinearNCA(2, init="identity").fit(x, np.repeat([0, 1], 20))
    assert model.loss_ < 1e-6


@pytest.mark.parametrize("kind", ALL)
def test_a_fit_that_did_not_converge_warns(kind):
    with pytest.warns(
        ConvergenceWarning, match=rf"{kind.__name__}: did not converge: stopped after max_iter \(1\) iterations; raise max_iter"
    ):
        kind(2, max_iter=1).fit(X, targets(kind))


@pytest.mark.parametrize("kind", ALL)
def test_warm_start_continues_where_the_last_fit_ended(kind):
    model = settled(kind(2, warm_start=True, max_iter=3), X, targets(kind))
    losses = [model.loss_]
    for _ in range(3):
        losses.append(settled(model, X, targets(kind)).loss_)
    assert all(b <= a + 1e-6 for a, b in zip(losses, losses[1:], strict=False)) and (kind is LMNN or losses[-1] < losses[0])
    with pytest.raises(ValueError, match=r"warm_start: the last transformation has shape \(2, 5\), and this fit needs \(2, 4\)"):
        model.fit(X[:, :4], targets(kind))


@pytest.mark.parametrize("kind", ALL)
def test_callback_and_verbose(kind, capsys):
    seen = []
    model = settled(kind(2, max_iter=4, callback=lambda a, i: seen.append((a.copy(), i)), verbose=1), X, targets(kind))
    assert seen[0][1] == 1 and seen[-1][0].shape == (10,)
    if kind is not LMNN:
        np.testing.assert_allclose(seen[-1][0], model.components_.ravel(), rtol=1e-5)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [f"[{kind.__name__}]", "iteration", "objective"] and len(lines) == 1 + len(seen)


@pytest.mark.parametrize("init", ["pca", "lda", "identity", "random", np.eye(2, 5)])
@pytest.mark.parametrize("kind", CLASSIFYING)
def test_every_init_fits_and_is_reproducible(kind, init):
    y = Y + (X[:, 2] > 0.8)  # three classes: two discriminant directions
    model = settled(kind(2, init=init, random_state=0, max_iter=30), X, y)
    assert np.isfinite(model.components_).all() and model.components_.shape == (2, 5)
    again = settled(kind(2, init=init, random_state=0, max_iter=30), X, y)
    assert np.array_equal(model.components_, again.components_)


def test_inits_are_those_of_scikit_learn():
    x, y = load_wine(return_X_y=True)
    lda = LinearDiscriminantAnalysis().fit(x, y).scalings_.T
    # Before 1.8 scikit-learn divided by n - C, not by n: the scale may differ, the directions may not.
    found = starting_point("auto", x, y, 2, True, 0)
    factor = np.linalg.norm(lda) / np.linalg.norm(found)
    np.testing.assert_allclose(np.abs(found) * factor, np.abs(lda), rtol=1e-6)
    assert factor == pytest.approx(1, abs=0.01)
    pca = PCA(4, random_state=0).fit(x).components_
    np.testing.assert_allclose(np.abs(starting_point("auto", x, y, 4, True, 0)), np.abs(pca), atol=1e-9)
    pca = PCA(4, random_state=0).fit(x[:9]).components_
    np.testing.assert_allclose(starting_point("pca", x[:9], y[:9], 4, True, 0), pca)
    np.testing.assert_array_equal(starting_point("auto", x, y, 13, True, 0), np.eye(13))
    few = slice(0, 178, 18)  # ten points of thirteen features: scikit-learn's own LDA
    wide = LinearDiscriminantAnalysis().fit(x[few], y[few]).scalings_.T
    np.testing.assert_allclose(starting_point("lda", x[few], y[few], 2, True, 0), wide)


def test_lmnn_improves_and_its_loss_is_exact():
    x, y = load_wine(return_X_y=True)
    x = StandardScaler().fit_transform(x)
    model = LMNN(n_neighbors=3, max_iter=400).fit(x, y)
    z = model.transform(x)
    squares = ((z[:, None] - z[None]) ** 2).sum(2)
    raw = ((x[:, None] - x[None]) ** 2).sum(2)
    loss = 0.0
    for i in range(len(x)):
        nearest = [j for j in np.argsort(raw[i], kind="stable") if y[j] == y[i] and j != i][:3]
        for j in nearest:
            loss += 0.5 * squares[i, j] + 0.5 * np.maximum(1 + squares[i, j] - squares[i][y != y[i]], 0).sum()
    assert model.loss_ * len(x) == pytest.approx(loss, rel=1e-4)


def test_lmnn_is_convex_so_every_start_ends_at_one_loss():
    losses = [settled(LMNN(init=init, random_state=1, tol=1e-7, max_iter=2000)).loss_ for init in ("identity", "random", "pca")]
    assert losses == pytest.approx([losses[0]] * 3, rel=2e-3)


def test_lmnn_has_no_plateau_and_does_not_depend_on_units():
    plain, large = settled(LMNN(init="identity")), settled(LMNN(init="identity"), X * 1e3)
    assert large.loss_ == pytest.approx(plain.loss_, rel=1e-3)


def test_lmnn_lowers_n_neighbors_for_classes_that_are_too_small():
    """metric-learn takes n_neighbors equal to the class size, and a point becomes its own target neighbor."""
    y = np.array([0] * 80 + [1] * 3 + [2] * 7)
    with pytest.warns(UserWarning, match=r"class .*1.* has 3 members, so n_neighbors \(3\) was lowered to 2"):
        model = LMNN(n_neighbors=3, max_iter=300).fit(X, y)
    assert model.n_neighbors_ == 2 and np.array_equal(model.components_, LMNN(n_neighbors=2, max_iter=300).fit(X, y).components_)
    with pytest.raises(ValueError, match="one sample only"):
        LMNN(n_neighbors=3).fit(X, [0] * 89 + [1])
    settled(LMNN(n_neighbors=2, max_iter=5), X, y)


def test_ppca_is_the_closed_form():
    model = ProbabilisticPCA(2).fit(X)
    covariance = np.cov(X.T, bias=True)
    values = np.sort(np.linalg.eigvalsh(covariance))[::-1]
    assert model.noise_variance_ == pytest.approx(values[2:].mean())
    w, noise = model.loadings_, model.noise_variance_
    posterior = np.linalg.solve(w.T @ w + noise * np.eye(2), w.T @ (X - X.mean(0)).T).T
    np.testing.assert_allclose(model.transform(X), posterior, atol=1e-12)
    from scipy.stats import multivariate_normal

    likely = multivariate_normal(X.mean(0), w @ w.T + noise * np.eye(5)).logpdf(X)
    np.testing.assert_allclose(model.score_samples(X), likely)
    assert model.score(X) == pytest.approx(likely.mean())
    assert model.score(X) == pytest.approx(PCA(2).fit(X).score(X), abs=0.05)  # which divides by n - 1
    wide = ProbabilisticPCA(3).fit(X[:4])  # fewer points than features
    assert wide.noise_variance_ >= 0 and np.isfinite(wide.transform(X)).all() and np.isfinite(wide.score_samples(X[:4])).all()
    with pytest.raises(ValueError, match=r"n_components \(5\) must be below the number of features \(5\)"):
        ProbabilisticPCA(5).fit(X)


@pytest.mark.parametrize("times", [2, 9])  # fewer rows than columns, and more
def test_ppca_of_repeated_rows_does_not_magnify_rounding(times):
    x = np.repeat(RNG.normal(size=(2, 6)), times, axis=0).astype(np.float32)
    model = ProbabilisticPCA(4).fit(x)
    assert (np.abs(model.components_[1:]) == 0).all() and np.abs(model.components_[0]).max() > 0  # two distinct rows span one direction
    assert np.isfinite(model.transform(x)).all()


@pytest.mark.parametrize("kind", [*ALL, ProbabilisticPCA])
def test_torch_in_torch_out_pickle_and_clone(kind):
    settings = {} if kind is ProbabilisticPCA else {"max_iter": 5}
    y = None if kind is ProbabilisticPCA else torch.from_numpy(targets(kind))
    model = settled(kind(2, **settings), torch.from_numpy(X), y)
    z = model.transform(torch.from_numpy(X).float())
    assert isinstance(z, torch.Tensor) and z.dtype == torch.float32
    np.testing.assert_allclose(z.numpy(), model.transform(X), atol=1e-4)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.transform(X), model.transform(X)) and clone(model).get_params() == model.get_params()
    assert list(model.get_feature_names_out()) == [f"{kind.__name__.lower()}{i}" for i in range(2)]


def test_in_a_pipeline_and_a_grid():
    x, y = load_iris(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), LinearNCA(2, tol=1e-3), KNeighborsClassifier(3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        assert cross_val_score(pipeline, x, y, cv=3).mean() > 0.93
        search = GridSearchCV(pipeline, {"linearnca__n_components": [1, 2]}, cv=2).fit(x, y)
    assert search.best_score_ > 0.9


@pytest.mark.parametrize(
    ("model", "y", "message"),
    [
        (LinearNCA(6), Y, r"n_components \(6\) is above the number of features \(5\); use 5 or fewer"),
        (LinearNCA(0), Y, r"n_components \(0\) must be a whole number of at least 1"),
        (LinearNCA(max_iter=0), Y, r"max_iter \(0\) must be a whole number of at least 1"),
        (LinearNCA(tol=0), Y, r"tol \(0\) must be a finite number above 0"),
        (LinearNCA(init="best"), Y, r"init 'best' is unknown; choose one of auto, pca, lda, identity, random"),
        (LinearNCA(solver="newton"), Y, r"solver 'newton' is unknown; choose one of lbfgs, conjugate_gradient"),
        (LinearNCA(init=np.eye(2, 4)), Y, r"init has 4 columns and the data 5 features"),
        (LinearNCA(init=np.ones((6, 5))), Y, r"init has 6 rows for 5 features"),
        (LinearNCA(3, init=np.eye(2, 5)), Y, r"init has 2 rows and n_components is 3"),
        (LinearNCA(2, init="lda"), Y, r"init 'lda' finds 1 directions; lower n_components \(2\) or choose pca"),
        (LinearNCA(2), T, r"Unknown label type: continuous"),
        (MLKR(2, init="lda"), T, r"init 'lda' needs classes, and y holds numbers"),
        (MLKR(2), np.ones(90), r"y holds one value only, so there is nothing to predict"),
        (LinearNCARegression(2), np.ones((90, 2)), r"y holds one value only"),
        (LMNN(mu=1.0), Y, r"mu \(1.0\) must be above 0 and below 1"),
        (LMNN(n_neighbors=0), Y, r"n_neighbors \(0\) must be a whole number"),
    ],
)
def test_bad_parameters_are_refused(model, y, message):
    with pytest.raises(ValueError, match=message):
        model.fit(X, y)


def test_a_start_of_more_principal_directions_than_points_is_refused():
    with pytest.raises(ValueError, match=r"init 'pca' finds 3 directions in 3 points; lower n_components \(4\)"):
        LinearNCA(4, init="pca").fit(X[:3], [0, 1, 0])


def test_solvers_never_end_above_the_start_and_report_why_they_stopped():
    def bowl(x):
        return float((x**2 * [1, 10, 100]).sum()), 2 * x * np.array([1, 10, 100])

    for solver in ("lbfgs", "conjugate_gradient"):
        found = solve(bowl, np.ones(3), solver, 100, 1e-9)
        assert found.converged and not found.exhausted and found.value < 1e-6
        short = solve(bowl, np.ones(3), solver, 1, 1e-9)
        assert short.exhausted and not short.converged and short.value <= 111 and short.message == "stopped after max_iter (1) iterations"


def test_linear_nca_in_raw_units_is_scikit_learns_fit():
    """In whitened units it is another local optimum, which was worse on held-out points of three sets out of four."""
    x, y = load_breast_cancer(return_X_y=True)
    x = (x - x.mean(0)) / x.std(0)
    theirs = NeighborhoodComponentsAnalysis(2, init="pca", max_iter=8, random_state=0).fit(x, y).transform(x)
    ours = settled(LinearNCA(2, init="pca", max_iter=8, random_state=0), x, y)
    whitened = settled(LinearNCA(2, init="pca", max_iter=8, random_state=0, whiten=True), x, y)
    found = ours.transform(x)
    sign = np.sign((found * theirs).sum(0))
    assert np.abs(found * sign - theirs).max() < 0.05 * np.abs(theirs).max()
    assert np.abs(whitened.transform(x) - found).max() > 0.05 * np.abs(theirs).max()


@pytest.mark.parametrize("columns", ["constant", "collinear", "one-hot"])
def test_the_default_start_takes_degenerate_columns(columns):
    """Fewer discriminant directions than classes: the start falls back to principal directions."""
    rng = np.random.default_rng(0)
    y = np.arange(60) % 6
    x = {
        "constant": np.c_[rng.normal(size=(60, 2)), np.ones((60, 3))],
        "collinear": rng.normal(size=(60, 2)) @ rng.normal(size=(2, 5)),
        "one-hot": np.eye(5)[rng.integers(0, 5, 60)],
    }[columns]
    for kind in (LinearNCA, LMNN):
        model = settled(kind(n_components=5, max_iter=3), x, y)
        assert model.components_.shape == (5, 5) and np.isfinite(model.components_).all()
