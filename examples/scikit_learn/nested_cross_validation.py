"""
A learned map or PCA before kNN: nested cross-validation
========================================================

Is a learned map better than PCA before a k-nearest-neighbor classifier? Nested cross-validation on three of scikit-learn's
sets: the inner folds choose k, the outer folds are reported, and the difference comes with a 95 % interval. It runs for
some minutes; :doc:`/performance` has the output of one run under "Linear fits".
"""

import warnings

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, RepeatedStratifiedKFold, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from nearkin import LMNN, LinearNCA

warnings.simplefilter("ignore", ConvergenceWarning)  # the fits are cut short
x, y = load_digits(return_X_y=True)
some = np.random.default_rng(0).permutation(len(y))[:600]  # of 1,797, to be quick
sets = {"wine": load_wine(return_X_y=True), "breast cancer": load_breast_cancer(return_X_y=True), "digits": (x[some], y[some])}
maps = {"PCA": PCA(), "LinearNCA": LinearNCA(max_iter=20, tol=1e-3), "LMNN": LMNN(max_iter=30, tol=1e-3)}
outer = RepeatedStratifiedKFold(n_splits=5, n_repeats=2, random_state=0)  # what is reported; the inner folds choose

for name, (x, y) in sets.items():
    for size in (2, 10):
        scores = {}
        for step, model in maps.items():
            pipeline = Pipeline(
                [("scale", StandardScaler()), ("map", model.set_params(n_components=size)), ("knn", KNeighborsClassifier())]
            )
            inner = GridSearchCV(pipeline, {"knn__n_neighbors": [1, 5, 15]}, cv=2)
            scores[step] = 100 * cross_val_score(inner, x, y, cv=outer)
        for step in list(maps)[1:]:
            gain = scores[step] - scores["PCA"]  # by outer fold: the same rows for both
            # Folds share training rows, so their differences are not independent: Nadeau and Bengio's correction, 1/n + test/train.
            half = 2.262 * gain.std(ddof=1) * np.sqrt(1 / len(gain) + 1 / 4)  # Student's t, 9 degrees of freedom
            low, high = gain.mean() - half, gain.mean() + half
            verdict = "better" if low > 0 else "worse" if high < 0 else "no difference shown"
            means = f"{step} {scores[step].mean():.1f} %, PCA {scores['PCA'].mean():.1f} %"
            print(f"{name}, {size} components: {means}; gain {gain.mean():+.1f} [{low:+.1f}, {high:+.1f}]: {verdict}", flush=True)
