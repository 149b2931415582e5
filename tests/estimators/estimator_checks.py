"""Run scikit-learn's checks on the estimators named on the command line and print the results as JSON.

Exits with 1 if a check failed or was skipped. One check needs SCIPY_ARRAY_API before scipy is imported, hence a separate process.
"""

import inspect
import json
import sys
import warnings

import sklearn
from sklearn.utils.estimator_checks import check_estimator

import nearkin

SETTINGS = {
    "LinearNCA": {"max_iter": 20},
    "LinearNCARegression": {"max_iter": 10},
    "MLKR": {"max_iter": 10},
    "LMNN": {"max_iter": 10},
    "ProbabilisticPCA": {"n_components": 1},  # some checks have two features
    "NeighborhoodEmbedding": {"epochs": 5},
    "NeighborhoodClassifier": {"epochs": 5},
    "NeighborhoodRegressor": {"epochs": 5},
    "TabularNCAClassifier": {"epochs": 3, "n_members": 1, "learning_rate": 0.03},
    "TabularNCARegressor": {"epochs": 3, "n_members": 1, "learning_rate": 0.03},
}
_STOCHASTIC = "weights and repeated rows draw different batches and held-out rows, as in scikit-learn's own MLPClassifier"
EXPECTED = {
    name: {f"check_sample_weight_equivalence_on_{kind}_data": _STOCHASTIC for kind in ("dense", "sparse")}
    for name in ("TabularNCAClassifier", "TabularNCARegressor")
}


def checked(name: str) -> dict[str, list[str]]:
    """Names of the checks by result: passed, skipped, failed."""
    estimator = getattr(nearkin, name)(**SETTINGS[name])
    found: dict[str, list[str]] = {"passed": [], "skipped": [], "failed": []}
    if "on_fail" not in inspect.signature(check_estimator).parameters:  # before scikit-learn 1.6
        for instance, check in check_estimator(estimator, generate_only=True):
            try:
                check(instance)
                found["passed"].append(str(check))
            except Exception as error:
                kind = "skipped" if type(error).__name__ == "SkipTest" else "failed"
                found[kind].append(f"{check}: {error!r}")
        return found
    for result in check_estimator(estimator, on_fail=None, on_skip=None, expected_failed_checks=EXPECTED.get(name, {})):
        if result["status"] == "xfail":
            continue
        line = result["check_name"] if result["status"] == "passed" else f"{result['check_name']}: {result['exception']!r}"
        found[result["status"]].append(line)
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # short fits warn that they did not converge
    found = {name: checked(name) for name in sys.argv[1:] or SETTINGS}
    print(json.dumps({"scikit-learn": sklearn.__version__, **found}))
    sys.exit(any(one["failed"] or one["skipped"] for one in found.values()))
