"""Does the rounding analysis cover onnxruntime? Its operations on directed operands, against exact arithmetic (docs/onnx.md).

γ_n = nu/(1−nu) and the term for flushed numbers are those of `verify.chain.rounding`.
"""

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flint import arb

from analyzer.numbers.exact import UNIT, working_precision
from constructions.exports import onnx_layers
from constructions.exports.fast_rounding import EXPONENTIAL
from constructions.exports.onnx_graphs import model_of
from constructions.exports.onnx_nodes import IR_VERSION, OPSET, GraphWriter, element
from constructions.network.precision import SMALLEST
from constructions.run.stream import plain_slots
from tests.conftest import random_network
from tests.exports.test_onnx import KINDS
from tests.running.test_positions_and_linear import KINDS as BLIND
from tests.running.test_positions_and_linear import blind
from verify.chain.rounding import exponential_error

pytestmark = [pytest.mark.reach, pytest.mark.filterwarnings("ignore")]

DTYPES = ["float64", "float32"]
EXACT = {
    "Cast", "Clip", "Concat", "Equal", "Expand", "Gather", "Greater", "Identity", "IsNaN", "Less", "Loop", "Max", "Min", "Range",
    "ReduceMax", "Relu", "Reshape", "Round", "Scan", "Shape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze", "Where",
}  # fmt: skip
"""Operations that move numbers, compare them, or return one of a few that the type holds."""
ROUNDED = {"Add", "Sub", "Mul", "Div", "MatMul", "ReduceSum"}


def session_of(model: Any, optimised: bool = True, **entries: str) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    for key, value in entries.items():
        options.add_session_config_entry(key.replace("__", "."), value)
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def single(kind: str, dtype: str, inputs: int, **attributes: Any) -> Any:
    """A model of one node."""
    from onnx import helper

    names = [f"x{k}" for k in range(inputs)]
    ends = [helper.make_tensor_value_info(name, element(dtype), None) for name in (*names, "y")]
    graph = helper.make_graph([helper.make_node(kind, names, ["y"], **attributes)], "one", ends[:-1], ends[-1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)


def directed(dtype: str, count: int, seed: int) -> np.ndarray:
    """Numbers of very different sizes, last bits set, neighbours of powers of 2, both signs, subnormal ones and zero."""
    rng = np.random.default_rng(seed)
    most = 30 if dtype == "float32" else 200
    numbers = np.ldexp(1 + rng.integers(0, 4, count) * np.finfo(dtype).eps, rng.integers(-most, most, count)) * rng.choice([-1, 1], count)
    numbers[::7] = np.nextafter(np.array(1, dtype), np.array(0, dtype))
    numbers[3::31] = np.finfo(dtype).smallest_subnormal * 3
    numbers[5::37] = 0
    return numbers.astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("terms", [1, 2, 3, 4, 5, 16, 17, 127, 128, 129, 300])
def test_products_of_matrices_are_sums_of_products_in_some_order(terms: int, dtype: str) -> None:
    rows, columns = 5, 3
    left, right = (
        directed(dtype, rows * terms, terms).reshape(rows, terms),
        directed(dtype, terms * columns, terms + 1).reshape(terms, columns),
    )
    cancelling = np.concatenate([left[:, : terms // 2], -left[:, : terms // 2]], axis=1)  # sums that cancel, but for their last term
    left[:, : cancelling.shape[1]] = cancelling
    right[terms // 2 : 2 * (terms // 2)] = right[: terms // 2]
    u, tiny = Fraction(int(UNIT[dtype].p), int(UNIT[dtype].q)), Fraction(int(SMALLEST[dtype].p), int(SMALLEST[dtype].q))
    for optimised in (True, False):
        found = session_of(single("MatMul", dtype, 2), optimised).run(None, {"x0": left, "x1": right})[0]
        for i, j in np.ndindex(rows, columns):
            pairs = [(Fraction(float(a)), Fraction(float(b))) for a, b in zip(left[i], right[:, j], strict=True)]
            largest = max(abs(a) for a, _ in pairs) + max(abs(b) for _, b in pairs)
            allowed = terms * u / (1 - terms * u) * sum(abs(a * b) for a, b in pairs) + 2 * terms * tiny * (1 + largest)
            assert abs(Fraction(float(found[i, j])) - sum(a * b for a, b in pairs)) <= allowed


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["Add", "Sub", "Mul", "Div"])
def test_single_operations_are_those_of_the_processor(kind: str, dtype: str) -> None:
    left, right = directed(dtype, 2000, 1), directed(dtype, 2000, 2)
    right = np.where(right == 0, np.array(1, dtype), right) if kind == "Div" else right
    operation = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}[kind]
    with np.errstate(all="ignore"):
        wanted = operation(left, right)  # numpy's are IEEE operations; the next test asks exact arithmetic
    assert np.array_equal(session_of(single(kind, dtype, 2)).run(None, {"x0": left, "x1": right})[0], wanted)


@pytest.mark.parametrize("dtype", DTYPES)
def test_single_operations_round_to_nearest(dtype: str) -> None:
    left, right = directed(dtype, 400, 3), directed(dtype, 400, 4)
    u, tiny = (Fraction(int(n.p), int(n.q)) for n in (UNIT[dtype], SMALLEST[dtype]))
    for kind in ("Add", "Mul"):
        found = session_of(single(kind, dtype, 2)).run(None, {"x0": left, "x1": right})[0]
        for a, b, c in zip(left, right, found, strict=True):
            x, y = Fraction(float(a)), Fraction(float(b))
            exact = x + y if kind == "Add" else x * y
            assert abs(Fraction(float(c)) - exact) <= max(u * abs(exact), tiny)


@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_over_an_axis(dtype: str) -> None:
    from onnx import helper

    numbers = directed(dtype, 5 * 257, 5).reshape(5, 257)
    model = single("ReduceSum", dtype, 1)
    model.graph.initializer.append(helper.make_tensor("axes", 7, [1], [-1]))
    model.graph.node[0].input.append("axes")
    found = session_of(model).run(None, {"x0": numbers})[0][:, 0]
    u = Fraction(int(UNIT[dtype].p), int(UNIT[dtype].q))
    for row, total in zip(numbers, found, strict=True):
        exact = [Fraction(float(v)) for v in row]
        assert abs(Fraction(float(total)) - sum(exact)) <= 257 * u / (1 - 257 * u) * sum(map(abs, exact))


@pytest.mark.parametrize("dtype", DTYPES)
def test_round_is_to_even_and_relu_is_exact(dtype: str) -> None:
    halves = (np.arange(-9, 10) / 2).astype(dtype)
    assert np.array_equal(session_of(single("Round", dtype, 1)).run(None, {"x0": halves})[0], np.rint(halves))
    numbers = directed(dtype, 500, 6)
    assert np.array_equal(session_of(single("Relu", dtype, 1)).run(None, {"x0": numbers})[0], np.maximum(numbers, 0))


@pytest.mark.parametrize("dtype", DTYPES)
def test_flushing_costs_what_the_analysis_counts(dtype: str) -> None:
    tiny = np.finfo(dtype).smallest_normal
    left, right = np.array([[tiny / 2, 1, tiny]], dtype), np.array([[1], [tiny / 4], [0.5]], dtype)
    found = session_of(single("MatMul", dtype, 2), session__set_denormal_as_zero="1").run(None, {"x0": left, "x1": right})[0]
    assert abs(float(found[0, 0]) - 1.25 * float(tiny)) <= 2 * 3 * float(tiny) * (1 + 1 + 1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_own_exponential_keeps_its_bound(dtype: str) -> None:
    from onnx import helper

    writer = GraphWriter(dtype)
    result = onnx_layers._exp(writer, "x")
    ends = [helper.make_tensor_value_info(name, element(dtype), None) for name in ("x", result)]
    graph = helper.make_graph(writer.nodes, "exp", ends[:1], ends[1:])
    from onnx import numpy_helper

    graph.initializer.extend(numpy_helper.from_array(np.asarray(a, order="C"), name) for name, a in writer.initialisers.items())
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    deepest = 80 if dtype == "float32" else 700
    x = np.concatenate([np.linspace(-deepest, deepest, 1501), np.arange(-40, 40) * np.log(2) / 2, [0.0, 1e-30]]).astype(dtype)
    found = session_of(model).run(None, {"x": x})[0]
    allowed = exponential_error(dtype)
    assert allowed <= EXPONENTIAL * arb(UNIT[dtype])
    with working_precision(128):
        for argument, value in zip(x, found, strict=True):
            exact = arb(float(argument)).exp()
            assert abs(arb(float(value)) - exact) <= allowed * exact


@pytest.mark.parametrize("dtype", DTYPES)
def test_optimisation_adds_no_operation_that_rounds_differently(dtype: str, tmp_path: Path) -> None:
    import onnx
    import onnxruntime

    def kinds(graph: Any) -> set[str]:
        inner = (kinds(attribute.g) for node in graph.node for attribute in node.attribute if attribute.g.node)
        return {f"{node.domain}{node.op_type}" for node in graph.node}.union(*inner)

    networks = [
        random_network(np.random.default_rng(index), (rpe.split() * 3)[:3], kind, window, layers=2, dtype=dtype)
        for index, (rpe, kind, window) in enumerate(KINDS)
    ]
    networks += [blind(kind, window, dtype) for kind, window in BLIND]
    for index, network in enumerate(networks):
        model = model_of(network, plain_slots(network))
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.optimized_model_filepath = str(tmp_path / f"{index}.onnx")
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        attention = network.layers[0].attention
        library = {"Log"} if attention.kind == "tmx" and "log" in attention.rpe else set()
        assert kinds(model.graph) <= EXACT | ROUNDED | library
        assert kinds(onnx.load(tmp_path / f"{index}.onnx").graph) <= EXACT | ROUNDED | library
