"""Exported pipelines as ONNX graphs in float64: an input for each column, and three outputs.

`output_label` (n,) has the names of classes. `output_decision` is (n, 1), or (n, K) for K > 2 classes. A calibrated
model also has `output_probability` (n, 2).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from fedsvm.federation.arrays import FloatArray

_OPSETS = {"": 18, "ai.onnx.ml": 1}
_IR_VERSION = 8
_LABEL, _DECISION, _PROBABILITY = "output_label", "output_decision", "output_probability"


def graph(pipeline: Any, columns: dict[str, NDArray[Any]], version: str) -> onnx.ModelProto:
    """Return the graph of a pipeline that `export.pipeline` made.

    Parameters
    ----------
    pipeline : Pipeline
    columns : dict of str to array
        Its input columns by name: numbers, or text.
    version : str
        The version of fedsvm that trained the model.
    """
    made = _Graph(columns)
    values = made.encode(pipeline.steps[0][1])
    for _, part in pipeline.steps[1:-1]:
        values = _CONVERTERS[type(part).__name__](made, part, values)
    made.classify(pipeline.steps[-1][1], values)
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.STRING if _is_text(each) else TensorProto.DOUBLE, ["n", 1])
        for name, each in columns.items()
    ]
    whole = helper.make_graph(made.nodes, "fedsvm", inputs, made.outputs, made.constants)
    opsets = [helper.make_opsetid(domain, number) for domain, number in _OPSETS.items()]
    model = helper.make_model(whole, opset_imports=opsets, ir_version=_IR_VERSION, producer_name="fedsvm")
    model.producer_version = version
    onnx.checker.check_model(model, full_check=True)
    return model


def decisions(model: onnx.ModelProto, columns: dict[str, NDArray[Any]]) -> FloatArray:
    """Return the decision values (n,) or (n, K) of a graph for rows, by ONNX's reference evaluator."""
    found = evaluate(model, columns)[1].astype(np.float64)
    return found[:, 0] if found.shape[1] == 1 else found


def evaluate(model: onnx.ModelProto, columns: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
    """Return all outputs of a graph for rows, in their order, by ONNX's reference evaluator."""
    found: Any = ReferenceEvaluator(model).run(None, inputs_of(columns))
    return list(found)


def inputs_of(columns: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return columns as inputs of a graph: (n, 1), numbers in float64."""
    return {
        name: (values.astype(np.object_) if _is_text(values) else values.astype(np.float64)).reshape(-1, 1)
        for name, values in columns.items()
    }


def _is_text(values: NDArray[Any]) -> bool:
    return values.dtype.kind in "OU"


class _Graph:
    """Nodes and constants of a graph under construction. A value is identified by its name."""

    def __init__(self, columns: dict[str, NDArray[Any]]) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self._taken = set(columns)

    def node(self, operator: str, *inputs: str, name: str = "value", domain: str = "", **attributes: Any) -> str:
        """Add an operator, and return the name of its value."""
        output = self._fresh(name)
        self.nodes.append(helper.make_node(operator, list(inputs), [output], domain=domain, **attributes))
        return output

    def constant(self, value: Any, kind: Any = np.float64) -> str:
        """Add a constant, and return its name."""
        name = self._fresh("constant")
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype=kind), name))
        return name

    def encode(self, transformer: Any) -> str:
        """Add the columns (n, q) that a ColumnTransformer computes from the inputs, and return their name."""
        parts = []
        for _, part, columns in transformer.transformers_:
            if type(part).__name__ == "OneHotEncoder":
                parts.append(self._indicators(columns[0], part.categories_[0]))
                continue
            numbers = self.node("Concat", *columns, axis=1)
            is_missing = self.node("IsNaN", numbers)
            if type(part).__name__ == "SimpleImputer":
                parts.append(self.node("Where", is_missing, self.constant(part.statistics_), numbers))
            elif type(part).__name__ == "MissingIndicator":
                parts.append(self.node("Cast", is_missing, to=TensorProto.DOUBLE))
            else:
                parts.append(numbers)
        return self.node("Concat", *parts, axis=1)

    def _indicators(self, column: str, categories: NDArray[Any]) -> str:
        encoded = self.node(
            "OneHotEncoder", column, domain="ai.onnx.ml", cats_strings=[str(each) for each in categories], zeros=1
        )
        flat = self.node("Reshape", encoded, self.constant([-1, len(categories)], np.int64))
        return self.node("Cast", flat, to=TensorProto.DOUBLE)

    def classify(self, classifier: Any, values: str) -> None:
        """Add the outputs of a linear classifier of features."""
        fixed = hasattr(classifier, "estimator_")
        linear = classifier.estimator_ if fixed else classifier
        products = self.node("MatMul", values, self.constant(linear.coef_.T))
        decision = self.node("Add", products, self.constant(linear.intercept_), name=_DECISION)
        several = len(linear.intercept_) > 1
        if several:
            index = self.node("ArgMax", decision, axis=1, keepdims=0)
        else:
            threshold = self.constant(classifier.threshold if fixed else 0.0)
            is_positive = self.node("GreaterOrEqual" if fixed else "Greater", decision, threshold)
            numbered = self.node("Cast", is_positive, to=TensorProto.INT64)
            index = self.node("Reshape", numbered, self.constant([-1], np.int64))
        names = self.constant([str(each) for each in linear.classes_], np.object_)
        label = self.node("Gather", names, index, name=_LABEL, axis=0)
        width = len(linear.intercept_)
        self.outputs.append(helper.make_tensor_value_info(label, TensorProto.STRING, ["n"]))
        self.outputs.append(helper.make_tensor_value_info(decision, TensorProto.DOUBLE, ["n", width]))
        if fixed and not several:
            chance = self.node("Sigmoid", decision)
            both = self.node("Concat", self.node("Sub", self.constant(1.0), chance), chance, name=_PROBABILITY, axis=1)
            self.outputs.append(helper.make_tensor_value_info(both, TensorProto.DOUBLE, ["n", 2]))

    def _fresh(self, name: str) -> str:
        """Return an unused name: the given one, with a number if it is used."""
        found, number = name, 1
        while found in self._taken:
            found, number = f"{name}_{number}", number + 1
        self._taken.add(found)
        return found


def _reorder(made: _Graph, part: Any, values: str) -> str:
    ((_, _, places),) = part.transformers_
    return made.node("Gather", values, made.constant(places, np.int64), axis=1)


def _clip(made: _Graph, part: Any, values: str) -> str:
    moved = made.node("Add", made.node("Mul", values, made.constant(part.scale_)), made.constant(part.min_))
    return made.node("Clip", moved, made.constant(0.0), made.constant(1.0))


def _scale(made: _Graph, part: Any, values: str) -> str:
    return made.node("Div", made.node("Sub", values, made.constant(part.mean_)), made.constant(part.scale_))


def _kernel_features(made: _Graph, part: Any, values: str) -> str:
    products = made.node("MatMul", values, made.constant(part.components_.T))
    if part.kernel == "rbf":
        own = made.node("ReduceSumSquare", values, made.constant([1], np.int64), keepdims=1)
        sums = made.node("Add", own, made.constant((part.components_**2).sum(axis=1)))
        distances = made.node("Sub", sums, made.node("Mul", products, made.constant(2.0)))
        positive = made.node("Max", distances, made.constant(0.0))
        products = made.node("Exp", made.node("Mul", positive, made.constant(-part.gamma)))
    elif part.kernel != "linear":
        scaled = made.node("Mul", products, made.constant(part.gamma))
        moved = made.node("Add", scaled, made.constant(part.coef0))
        is_power = part.kernel == "poly"
        products = made.node("Pow", moved, made.constant(part.degree)) if is_power else made.node("Tanh", moved)
    return made.node("MatMul", products, made.constant(part.normalization_.T))


def _fourier_features(made: _Graph, part: Any, values: str) -> str:
    angles = made.node("MatMul", values, made.constant(part.random_weights_))
    moved = made.node("Add", angles, made.constant(part.random_offset_ + np.pi / 2))  # runtimes lack cos in float64
    return made.node("Mul", made.node("Sin", moved), made.constant((2.0 / part.n_components) ** 0.5))


def _signs(made: _Graph, part: Any, values: str) -> str:
    is_above = made.node("Greater", values, made.constant(part.threshold))
    return made.node("Cast", is_above, to=TensorProto.DOUBLE)


_CONVERTERS: dict[str, Callable[[_Graph, Any, str], str]] = {
    "ColumnTransformer": _reorder,
    "MinMaxScaler": _clip,
    "StandardScaler": _scale,
    "Nystroem": _kernel_features,
    "RBFSampler": _fourier_features,
    "Binarizer": _signs,
}
"""The converters of parts, by the class of the part."""
