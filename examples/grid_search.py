"""Tune PanSVC over three sites with scikit-learn's grid search."""

from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import GridSearchCV, train_test_split

from fedsvm import PanSVC

X, y = load_breast_cancer(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.25, stratify=y, random_state=0)

# Every fit starts a federation of three processes, and ends it. The sites agree on the scale of the columns.
search = GridSearchCV(
    PanSVC(sites=3, landmarks=30, tolerance=1e-3),
    {"C": [1.0, 10.0], "gamma": [0.01, 0.03]},
    cv=2,
)
search.fit(X_train, y_train)

best = search.best_estimator_
print("best parameters", search.best_params_)
print(f"accuracy {best.score(X_test, y_test):.3f} on the test rows, certified gap {best.gap_:.0e}")
print(f"{best.result_['cost']['rounds']} rounds, {best.result_['cost']['wire_bytes'] / 1e6:.1f} MB on the wire")
for disclosure in best.result_["disclosures"]:
    if disclosure["to"] == "coordinator" and disclosure["kind"] != "sum":
        print(f"not a sum: {disclosure['step']}, {disclosure['detail'] or 'the value of each site'}")
