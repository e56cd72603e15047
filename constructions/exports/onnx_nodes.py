"""Nodes and initialisers of an ONNX graph, written one after the other (onnx.helper; no exporter). Needs the extra `onnx`."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np

from analyzer.errors import InputError

HINT = "ONNX files need onnx and onnxruntime: pip install 'lemmaformer[onnx]'"
OPSET = 17
IR_VERSION = 8
"""The version of the file format that came with opset 17."""


def onnx_package() -> ModuleType:
    """The package onnx, or one line that says how to get it."""
    try:
        import onnx
        import onnx.helper
        import onnx.numpy_helper
    except ImportError:
        raise InputError(HINT) from None
    return onnx


@dataclass
class GraphWriter:
    """A graph under construction: nodes in the order in which they run, initialisers by name; names count the nodes of all bodies."""

    dtype: str
    nodes: list[Any] = field(default_factory=list)
    initialisers: dict[str, np.ndarray] = field(default_factory=dict)
    parent: "GraphWriter | None" = None
    counted: list[int] = field(default_factory=lambda: [0])
    place: str = ""
    known: dict[tuple[str, ...], str] = field(default_factory=dict)
    """Results that are needed twice, such as a transposed weight, by what they are."""

    @property
    def root(self) -> "GraphWriter":
        return self if self.parent is None else self.parent.root

    def fresh(self, kind: str) -> str:
        """A new name of a value."""
        self.counted[0] += 1
        return f"{self.root.place}{kind}_{self.counted[0]}"

    def node(self, kind: str, *inputs: str, name: str | None = None, **attributes: Any) -> str:
        """A node with one output, whose name is returned."""
        output = name or self.fresh(kind.lower())
        self.nodes.append(onnx_package().helper.make_node(kind, list(inputs), [output], name=output, **attributes))
        return output

    def constant(self, value: Any, name: str | None = None, as_numbers: bool = False) -> str:
        """An initialiser; numbers of the network's type unless they are integers or truth values. One without a name is shared."""
        array = np.asarray(value)
        array = array if array.dtype.kind in "ib" and not as_numbers else array.astype(self.dtype)
        key = ("constant", str(array.dtype), str(array.shape), array.tobytes().hex())
        if name is None:
            name = self.root.known.get(key) or self.fresh("constant")
            self.root.known[key] = name
        self.root.initialisers[name] = array
        return name

    def integers(self, *values: int) -> str:
        """A list of integers, such as a shape or axes."""
        return self.constant(np.array(values, np.int64))

    def once(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """A node of the main graph that is written once, however often it is asked for."""
        key = (kind, *inputs, repr(sorted(attributes.items())))
        if key not in self.root.known:
            self.root.known[key] = self.root.node(kind, *inputs, **attributes)
        return self.root.known[key]

    def body(self) -> "GraphWriter":
        """The graph inside a Scan or Loop, which sees the values of this one."""
        return GraphWriter(self.dtype, parent=self, counted=self.counted)

    def finished_body(self, name: str, inputs: Sequence[tuple[str, str]], outputs: Sequence[tuple[str, str]]) -> Any:
        """The body as a graph; inputs and outputs are (name, type): numbers of the network's type are arrays, others single."""
        helper = onnx_package().helper
        given, found = (
            [helper.make_tensor_value_info(n, element(kind), None if kind == self.dtype else []) for n, kind in ends]
            for ends in (inputs, outputs)
        )
        return helper.make_graph(self.nodes, name, given, found)

    def shape(self, value: str, axis: int) -> str:
        """The length of one axis, as a list of one integer."""
        return self.node("Shape", value, start=axis, end=axis + 1)

    def reshaped(self, value: str, *sizes: int) -> str:
        """0 keeps an axis, −1 takes what is left."""
        return self.node("Reshape", value, self.integers(*sizes))

    def transposed(self, value: str, *axes: int) -> str:
        return self.node("Transpose", value, perm=list(axes))

    def taken(self, value: str, indices: Sequence[int], axis: int) -> str:
        """Some entries of an axis."""
        return self.node("Gather", value, self.constant(np.array(indices, np.int64)), axis=axis)


def element(kind: str) -> int:
    """The number that ONNX has for an element type."""
    types = onnx_package().TensorProto
    return int({"float32": types.FLOAT, "float64": types.DOUBLE, "int64": types.INT64, "bool": types.BOOL}[kind])
