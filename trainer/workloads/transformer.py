"""Shared parts of the transformer workloads: sizes, blocks, and formulas for parameters and FLOPs."""

from __future__ import annotations

from typing import Any, Literal

from trainer.errors import ConfigError
from trainer.workloads.base import Size

BYTES = 256
"""Tokens of the vocabulary: text is read byte by byte."""
SIZES = (
    Size("layers", 12, "blocks", most=200),
    Size("width", 768, "features of a token", most=2**15),
    Size("heads", 12, "of the attention; they share the width", most=2**10),
)
"""Those of GPT-2 small and of BERT-base."""


def check(width: int, heads: int) -> None:
    """Raises ConfigError for a width that the heads cannot share evenly."""
    if width % heads:
        problem = f"{heads} heads cannot share {width} features evenly; use a multiple of {heads} for width"
        raise ConfigError("--workload", f"heads={heads},width={width}", problem)


def blocks(tokens: Any, layers: int, width: int, heads: int, **options: Any) -> Any:
    """Return what `layers` blocks make of symbolic tokens [batch, length, width]; `options` are those of a block."""
    check(width, heads)
    for _ in range(layers):
        tokens = _block(tokens, width, heads, **options)
    return tokens


def _block(
    tokens: Any, width: int, heads: int, norm: Literal["before", "after"], dropout: float = 0.0, **attends: Any
) -> Any:
    """Attention and a layer of 4 x width with GELU, each added to what it got and normalised before or after.

    `attends`: which positions attend to which, as `keras.layers.MultiHeadAttention` takes it.
    """
    from keras import layers

    def attention(given: Any) -> Any:
        return layers.MultiHeadAttention(heads, width // heads, dropout=dropout)(given, given, **attends)

    def feed_forward(given: Any) -> Any:
        return layers.Dense(width)(layers.Dense(4 * width, activation="gelu")(given))

    for part in (attention, feed_forward):
        change = part(layers.LayerNormalization(epsilon=1e-5)(tokens) if norm == "before" else tokens)
        if dropout:
            change = layers.Dropout(dropout)(change)
        tokens = layers.Add()([tokens, change])
        if norm == "after":
            tokens = layers.LayerNormalization(epsilon=1e-5)(tokens)
    return tokens


def block_parameters(layers: int, width: int) -> int:
    """Weights and biases of the blocks: 12 width^2 weights each (Kaplan et al., arXiv:2001.08361, table 1).

    Biases: 4 of the attention, 4 + 1 of the feed-forward layer; two normalisations with scale and offset.
    """
    return layers * (12 * width**2 + 13 * width)


def block_flops(length: int, layers: int, width: int) -> int:
    """Training on one sequence: 6 for each weight and token, and 12 x layers x width x length for each token.

    The second term are the products of queries with keys and of their weights with values, forward and backward, all
    positions with all, masked or not: A. Chowdhery et al., PaLM, arXiv:2204.02311, appendix B.
    """
    return length * (6 * layers * 12 * width**2 + 12 * layers * width * length)
