"""How many floating-point operations does training on one sample take? Counted in the very graph that trains.

Convention: matrix products and convolutions only, two operations (multiply, add) for each weight and output position,
forward and backward, as usual for the utilisation of a device by model FLOPs. Nothing recomputed, no optimizer, no
element-wise work. The gradient with respect to the input images is not counted: nobody needs it, and it never runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

Shape = tuple[int, ...]
OpDefOf = Callable[[str], Any]  # from the name of an operation to its tf.OpDef

_PRODUCTS = ("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
_FORWARD = ("Conv2D", "Conv3D", "DepthwiseConv2dNative")
_INPUT_GRADIENT = ("Conv2DBackpropInput", "Conv3DBackpropInputV2", "DepthwiseConv2dNativeBackpropInput")
_FILTER_GRADIENT = ("Conv2DBackpropFilter", "Conv3DBackpropFilterV2", "DepthwiseConv2dNativeBackpropFilter")
_COUNTED = frozenset((*_PRODUCTS, *_FORWARD, *_INPUT_GRADIENT, *_FILTER_GRADIENT))
_LOOPS = ("While", "StatelessWhile")


class NotCountable(Exception):
    """The graph does not say how often something runs, or on which shapes."""


def count_flops(function: Any) -> int:
    """Return the operations of one run of a tf.ConcreteFunction; a loop of open length on its top level turns once.

    Raises NotCountable when a loop inside has no fixed length or a shape is not known.
    """
    graph = function.graph.as_graph_def(add_shapes=True)
    op_def = function.graph.op_def_for_type
    bodies = {each.signature.name: _Body(each, op_def) for each in graph.library.function}
    roots = [output.op.name for output in function.graph.outputs]
    roots += [operation.name for operation in function.graph.control_outputs]
    return _Counter(bodies).count(_Nodes(graph.node, {}, roots, op_def), top=True)


def _dimensions(shape: Any) -> Shape | None:
    sizes = tuple(int(dimension.size) for dimension in shape.dim)
    return None if shape.unknown_rank or any(size < 0 for size in sizes) else sizes


class _Nodes:
    """The nodes of one graph that something depends on, and the shapes of what flows between them."""

    def __init__(
        self, nodes: Iterable[Any], arguments: dict[str, Shape | None], roots: Iterable[str], op_def: OpDefOf
    ) -> None:
        self._by_name = {node.name: node for node in nodes}
        self._arguments = arguments
        self._roots = list(roots)
        self._op_def = op_def

    def live(self) -> Iterator[Any]:
        """Yield each node that a root depends on: tracing leaves dead gradients behind, which never run."""
        seen: set[str] = set()
        waiting = list(self._roots)
        while waiting:
            name = waiting.pop()
            if name in seen or name not in self._by_name:
                continue
            seen.add(name)
            node = self._by_name[name]
            waiting += [_node_name(reference) for reference in node.input]
            yield node

    def node_of(self, reference: str) -> Any | None:
        """Return the node that an input refers to; None for an argument of the function."""
        return self._by_name.get(_node_name(reference))

    def shape(self, reference: str) -> Shape:
        """Return the shape of an input. Raises NotCountable when tracing left it open."""
        name = _node_name(reference)
        found = self._arguments.get(name)
        if name in self._by_name:
            node = self._by_name[name]
            found = self.output_shape(node, _output_number(reference, node, self._op_def))
        if found is None:
            raise NotCountable(f"the shape of {name} is not known when the model is traced")
        return found

    def output_shape(self, node: Any, number: int = 0) -> Shape | None:
        """Return the shape of a node's output."""
        shapes = node.attr["_output_shapes"].list.shape
        return _dimensions(shapes[number]) if number < len(shapes) else None


def _node_name(reference: str) -> str:
    return reference.lstrip("^").partition(":")[0]


def _output_number(reference: str, node: Any, op_def: OpDefOf) -> int:
    """Return n of "node:n"; of "node:output_name:n", which counts from the first tensor of that output, its place."""
    _, _, output = reference.partition(":")
    name, named, tail = output.rpartition(":")
    number = int(tail) if tail.isdecimal() else 0
    if not named:
        return number
    for argument in op_def(node.op).output_arg:
        if argument.name == name:
            break
        number += _tensors(argument, node)
    return number


def _tensors(argument: Any, node: Any) -> int:
    """Return how many tensors an output of an operation stands for."""
    if argument.number_attr:
        return int(node.attr[argument.number_attr].i)
    return len(node.attr[argument.type_list_attr].list.type) if argument.type_list_attr else 1


class _Body(_Nodes):
    """The graph of a function in the library."""

    def __init__(self, function: Any, op_def: OpDefOf) -> None:
        arguments: dict[str, Shape | None] = {}
        for number, argument in enumerate(function.signature.input_arg):
            attributes = function.arg_attr[number].attr if number in function.arg_attr else {}
            shapes = attributes["_output_shapes"].list.shape if "_output_shapes" in attributes else []
            arguments[argument.name] = _dimensions(shapes[0]) if shapes else None
        roots = [_node_name(reference) for reference in (*function.ret.values(), *function.control_ret.values())]
        super().__init__(function.node_def, arguments, roots, op_def)


class _Counter:
    def __init__(self, bodies: dict[str, _Body]) -> None:
        self._bodies = bodies

    def count(self, nodes: _Nodes, top: bool = False) -> int:
        return sum(self._of_node(nodes, node, top) for node in nodes.live())

    def _of_node(self, nodes: _Nodes, node: Any, top: bool) -> int:
        if node.op in _COUNTED:
            return _operations(nodes, node)
        called = [value.func.name for value in node.attr.values() if value.func.name in self._bodies]
        called += [func.name for value in node.attr.values() for func in value.list.func if func.name in self._bodies]
        if not called:
            return 0
        counts = [self.count(self._bodies[name], top and node.op not in _LOOPS) for name in called]
        if node.op not in _LOOPS:
            return max(counts)  # a call has one function; of the branches of a condition one runs
        return sum(counts) and _turns(nodes, node, top) * sum(counts)


def _turns(nodes: _Nodes, loop: Any, top: bool) -> int:
    """Return the fixed length of a loop: TensorFlow hands a limit on the number of turns to it as its second input.

    On the top level a loop without one is the loop over training steps, of which one is counted.
    """
    for reference in loop.input[1:3]:
        source = nodes.node_of(reference)
        while source is not None and source.op in ("Identity", "Cast") and source.input:
            source = nodes.node_of(source.input[0])
        if source is not None and source.op == "Const":
            values = source.attr["value"].tensor
            limit = int((list(values.int_val) or list(values.int64_val) or [-1])[0])
            if limit > 0:
                return limit
        if source is not None and source.op in _LOOPS:
            return _turns(nodes, source, top)  # the gradient of a loop turns as often as the loop
    if top:
        return 1
    raise NotCountable(f"the loop {loop.name} has no length that is fixed when the model is traced")


def _operations(nodes: _Nodes, node: Any) -> int:
    if node.op in _PRODUCTS:
        return _of_product(nodes, node)
    output = nodes.output_shape(node)
    if output is None:
        raise NotCountable(f"the shape of {node.name} is not known when the model is traced")
    filters: Shape
    positions: Shape
    if node.op in _FORWARD:
        filters, positions = nodes.shape(node.input[1]), output
    elif node.op in _INPUT_GRADIENT:
        filters, positions = nodes.shape(node.input[1]), nodes.shape(node.input[2])
    else:
        filters, positions = output, nodes.shape(node.input[2])
    channels_first = node.attr["data_format"].s.startswith(b"NC")
    spatial = positions[2:] if channels_first else positions[1:-1]
    return 2 * positions[0] * math.prod(spatial) * math.prod(filters)


def _of_product(nodes: _Nodes, node: Any) -> int:
    output = nodes.output_shape(node)
    if output is None:
        raise NotCountable(f"the shape of {node.name} is not known when the model is traced")
    left = nodes.shape(node.input[0])
    transposed = node.attr["transpose_a"].b or node.attr["adj_x"].b
    return 2 * math.prod(output) * (left[-2] if transposed else left[-1])


def flops_per_sample(function: Any, samples: int) -> tuple[int | None, str]:
    """Return the operations for each of the `samples` that one step of `function` trains on, or None and why not."""
    try:
        return round(count_flops(function) / samples), ""
    except NotCountable as problem:
        return None, f"not counted: {problem}"
