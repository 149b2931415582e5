"""
In a scikit-learn pipeline
==========================

nearkin's estimators follow scikit-learn's conventions: they work in ``Pipeline``, ``GridSearchCV``, ``clone`` and
``set_output``, and pass ``check_estimator``. ``LinearNCA`` learns a linear map, ``NeighborhoodEmbedding`` trains a small
network; both put points of one class near each other.
"""

# %%
# Wine: 178 bottles from three growers, 13 measurements. The first question is whether a learned map is better than PCA
# before a nearest-neighbor classifier.
import matplotlib.pyplot as plt
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from nearkin import LinearNCA, NeighborhoodEmbedding

x, y = load_wine(return_X_y=True)
folds = StratifiedKFold(5, shuffle=True, random_state=0)
maps = {
    "PCA": PCA(2),
    "LinearNCA": LinearNCA(2, max_iter=50, tol=1e-3),
    "NeighborhoodEmbedding": NeighborhoodEmbedding(n_components=2, epochs=20, random_state=0),
}
for name, step in maps.items():
    scores = cross_val_score(make_pipeline(StandardScaler(), step, KNeighborsClassifier(5)), x, y, cv=folds)
    print(
        f"{name} to 2 dimensions, then 5-NN: {100 * scores.mean():.1f} % (five folds, {100 * scores.min():.1f} to {100 * scores.max():.1f})"
    )

# %%
# The maps themselves, fitted on all bottles:
figure, axes = plt.subplots(1, 3, figsize=(11, 3.9), layout="constrained")
for axis, (name, step) in zip(axes, maps.items(), strict=True):
    z = make_pipeline(StandardScaler(), step).fit_transform(x, y)
    axis.scatter(*z.T, c=y, cmap="tab10", vmax=9, s=14)
    axis.set(title=name, xticks=[], yticks=[])
plt.show()

# %%
# Choose the number of components and neighbors as you would for any other step:
pipeline = make_pipeline(StandardScaler(), LinearNCA(max_iter=50, tol=1e-3), KNeighborsClassifier())
search = GridSearchCV(pipeline, {"linearnca__n_components": [1, 2, 4], "kneighborsclassifier__n_neighbors": [1, 5, 15]}, cv=folds)
search.fit(x, y)
print(f"best: {search.best_params_}, {100 * search.best_score_:.1f} %")

# %%
# Differences of a point or two between maps mean nothing on 178 bottles. The longer study below this tutorial compares
# maps by nested cross-validation and gives intervals. :doc:`/how-to/estimators/index` has a page for each estimator.
