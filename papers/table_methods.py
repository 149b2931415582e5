"""The methods of the contest on tables: how each is made, with its defaults or with settings, and what its search may change."""

# ruff: noqa: ARG001 - every maker takes the same arguments, whether it needs them or not

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor, NeighborhoodComponentsAnalysis
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

from nearkin.estimators import TabularNCAClassifier, TabularNCARegressor

OURS = "TabularNCA"
ENSEMBLE = "TabularNCA x 4"
NCA_ROWS = 2_000
Make = Callable[..., Any]  # (seed, table, device, **settings): an estimator that fits this table
Search = Mapping[str, tuple[float, float] | Sequence[Any]]  # a pair of floats is a range on a log scale, anything else a choice


@dataclass(frozen=True)
class Method:
    """How a method is made for classes and numbers, the settings that its search tries, and those of all trials but not of the last fit."""

    classes: Make | None
    numbers: Make | None
    search: Search
    trials: Mapping[str, Any] = field(default_factory=dict)

    def make(self, task: str) -> Make | None:
        """The maker for classes or numbers, if there is one."""
        return self.classes if task == "classes" else self.numbers


def _categories(table: Any) -> list[str]:
    return [] if isinstance(table, np.ndarray) else [name for name, kind in table.dtypes.items() if str(kind) == "category"]


def _ours(kind: Any, seed: int, table: Any, device: str, **settings: Any) -> Any:
    return kind(random_state=seed, device=device, **settings)


def _boosting(module: str, name: str, fixed: Mapping[str, Any], seed: int, table: Any, device: str, **settings: Any) -> Any:
    try:
        kind = getattr(import_module(module), name)
    except ImportError:
        raise ImportError(f"the contest needs {module}; pip install 'nearkin[tables]', or leave it out with --methods") from None
    more = {"cat_features": _categories(table)} if module == "catboost" else {}
    return kind(random_state=seed, **fixed, **more, **settings)


def _hist(kind: Any, seed: int, table: Any, device: str, **settings: Any) -> Any:
    """It reads the categories of a frame by itself, but takes no column of more than 255; such columns become numbers."""
    model, many = kind(random_state=seed, **settings), [name for name in _categories(table) if table[name].nunique() > 255]
    columns = make_column_transformer((_ordinal(), many), remainder="passthrough", verbose_feature_names_out=False)
    return make_pipeline(columns.set_output(transform="pandas"), model) if many else model


def _ordinal() -> Any:
    return OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-2)


def _forest(kind: Any, seed: int, table: Any, device: str, **settings: Any) -> Any:
    model, categories = kind(random_state=seed, **settings), _categories(table)
    return make_pipeline(make_column_transformer((_ordinal(), categories), remainder="passthrough"), model) if categories else model


def _scaled(make: Callable[..., Any], seed: int, table: Any, device: str, **settings: Any) -> Any:
    """On standardized numbers and one-hot categories."""
    one_hot = OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=5, sparse_output=False)
    numbers, categories = make_pipeline(SimpleImputer(), StandardScaler()), _categories(table)
    columns = make_column_transformer((one_hot, categories), remainder=numbers) if categories else numbers
    return make_pipeline(columns, make(seed, **settings))


def _logistic(seed: int, penalty: float = 1.0) -> Any:
    return LogisticRegression(max_iter=1000, C=1 / penalty)


def _ridge(seed: int, penalty: float | None = None) -> Any:
    """Without a penalty, the best of thirteen by leave-one-out."""
    return RidgeCV(alphas=np.logspace(-3, 3, 13) if penalty is None else [penalty])


def _neighbors(kind: Any, seed: int, **settings: Any) -> Any:
    return kind(**settings)


def _mlp(kind: Any, seed: int, **settings: Any) -> Any:
    model = kind(random_state=seed, early_stopping=True, max_iter=500, **settings)
    return model if kind is MLPClassifier else TransformedTargetRegressor(model, transformer=StandardScaler())


class SampledNCA(NeighborhoodComponentsAnalysis):  # type: ignore[misc]
    """scikit-learn's NCA, which holds all pairs, learned from the first rows, which are random ones here."""

    def fit(self, X: Any, y: Any) -> Any:  # noqa: N803
        """Learn from at most 2,000 rows."""
        return super().fit(X[:NCA_ROWS], y[:NCA_ROWS])


def _nca_and_knn(seed: int, **settings: Any) -> Any:
    nca = SampledNCA(random_state=seed, max_iter=50, n_components=settings.get("n_components"))
    return make_pipeline(nca, KNeighborsClassifier(settings.get("n_neighbors", 5)))


def _boosted(module: str, classes: str, numbers: str, fixed: Mapping[str, Any], search: Search) -> Method:
    return Method(partial(_boosting, module, classes, fixed), partial(_boosting, module, numbers, fixed), search)


def _both(make: Any, classes: Any, numbers: Any, search: Search) -> Method:
    return Method(partial(make, classes), partial(make, numbers), search)


_OUR_SEARCH: Search = {
    "learning_rate": (0.002, 0.03),
    "frequency_scale": (0.02, 0.5),
    "n_components": (32, 64, 128),
    "blocks": (0, 0, 1),
    "weight_decay": (1e-5, 1e-2),
    "number_embedding": ("periodic", "periodic", "piecewise", "none"),
    "scaling": ("quantile", "standard"),
}
METHODS: dict[str, Method] = {
    OURS: Method(partial(_ours, TabularNCAClassifier), partial(_ours, TabularNCARegressor), _OUR_SEARCH, {"n_members": 1}),
    ENSEMBLE: Method(
        partial(_ours, partial(TabularNCAClassifier, n_members=4)), partial(_ours, partial(TabularNCARegressor, n_members=4)), {}
    ),
    "LightGBM": _boosted(
        "lightgbm",
        "LGBMClassifier",
        "LGBMRegressor",
        {"n_jobs": 1, "verbose": -1},
        {
            "learning_rate": (0.01, 0.3),
            "n_estimators": (100, 300, 1000),
            "num_leaves": (7, 15, 31, 63, 127),
            "min_child_samples": (2, 5, 20, 50),
            "colsample_bytree": (0.5, 0.75, 1.0),
            "reg_lambda": (1e-3, 10.0),
        },
    ),
    "XGBoost": _boosted(
        "xgboost",
        "XGBClassifier",
        "XGBRegressor",
        {"n_jobs": 1, "enable_categorical": True},
        {
            "learning_rate": (0.01, 0.3),
            "n_estimators": (100, 300, 1000),
            "max_depth": (3, 4, 6, 8, 10),
            "min_child_weight": (0.1, 10.0),
            "subsample": (0.6, 0.8, 1.0),
            "colsample_bytree": (0.5, 0.75, 1.0),
        },
    ),
    "CatBoost": _boosted(
        "catboost",
        "CatBoostClassifier",
        "CatBoostRegressor",
        {"thread_count": 1, "verbose": 0, "allow_writing_files": False},
        {"learning_rate": (0.01, 0.3), "depth": (4, 6, 8), "l2_leaf_reg": (1.0, 10.0), "iterations": (300, 1000)},
    ),
    "HistGradientBoosting": _both(
        _hist,
        partial(HistGradientBoostingClassifier, categorical_features="from_dtype"),
        partial(HistGradientBoostingRegressor, categorical_features="from_dtype"),
        {"learning_rate": (0.01, 0.3), "max_iter": (100, 300), "max_leaf_nodes": (15, 31, 63), "l2_regularization": (1e-3, 10.0)},
    ),
    "Random forest": _both(
        _forest, RandomForestClassifier, RandomForestRegressor, {"max_features": (0.2, 0.4, 0.7, 1.0), "min_samples_leaf": (1, 2, 5)}
    ),
    "Linear": Method(partial(_scaled, _logistic), partial(_scaled, _ridge), {"penalty": (1e-3, 1e3)}),
    "kNN": Method(
        partial(_scaled, partial(_neighbors, KNeighborsClassifier)),
        partial(_scaled, partial(_neighbors, KNeighborsRegressor)),
        {"n_neighbors": (1, 3, 5, 10, 20, 40), "weights": ("uniform", "distance"), "p": (1, 2)},
    ),
    "MLP": Method(
        partial(_scaled, partial(_mlp, MLPClassifier)),
        partial(_scaled, partial(_mlp, MLPRegressor)),
        {"alpha": (1e-6, 1e-1), "learning_rate_init": (1e-4, 1e-2), "hidden_layer_sizes": ((100,), (256,), (256, 256))},
    ),
    "NCA + kNN": Method(partial(_scaled, _nca_and_knn), None, {"n_components": (4, 8, 16, None), "n_neighbors": (1, 5, 15)}),
}


ABLATIONS: dict[str, dict[str, Any]] = {
    "one member": {"n_members": 1},
    "all rows per step": {"reference_share": 1.0},
    "piecewise numbers": {"number_embedding": "piecewise"},
    "plain numbers": {"number_embedding": "none"},
    "standard scaling": {"scaling": "standard"},
    "squared distance": {"distance": "squared_euclidean"},
    "temperature 0.3": {"temperature": 0.3},
    "temperature 3": {"temperature": 3.0},
}
METHODS |= {
    f"{OURS}, {name}": _both(_ours, partial(TabularNCAClassifier, **settings), partial(TabularNCARegressor, **settings), {})
    for name, settings in ABLATIONS.items()
}
MAIN = tuple(name for name in METHODS if not name.startswith(f"{OURS}, "))


def drawn(search: Search, generator: np.random.Generator) -> dict[str, Any]:
    """Settings drawn at random: log-uniform in a range, uniform among choices."""
    found = dict[str, Any]()
    for name, among in search.items():
        if isinstance(among, tuple) and len(among) == 2 and all(isinstance(end, float) for end in among):
            found[name] = float(np.exp(generator.uniform(*np.log(np.asarray(among, dtype=np.float64)))))
        else:
            found[name] = among[int(generator.integers(len(among)))]
    return found
