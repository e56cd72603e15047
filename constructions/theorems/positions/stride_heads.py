"""The weights of `analyzer.theorems.positions.stride_heads`: the network of Theorem 3.1 for lags in steps of its stride."""

from dataclasses import replace

from analyzer.families import Fixed
from analyzer.targets.fixed import FixedMemory
from analyzer.theorems.positions.stride_heads import check, in_steps, in_tokens, without_stride
from constructions.network.transformer import Transformer
from constructions.theorems import assembly, thm_3_1
from constructions.theorems.construction import Construction

slots = assembly.slots
meanings = assembly.meanings


def build(target: FixedMemory, options: Fixed) -> Construction:
    """Build the layer for the lags T/c, and let its heads see every c-th token."""
    check(target, options)
    with in_tokens(options.stride):
        plain = thm_3_1.build(in_steps(target, options.stride), without_stride(options))
    return Construction(target, options, with_stride(plain.network, options.stride), plain.draws)


def with_stride(network: Transformer, stride: int) -> Transformer:
    """The same network with this stride in every layer."""
    layers = tuple(replace(layer, attention=replace(layer.attention, stride=stride)) for layer in network.layers)
    return replace(network, layers=layers)
