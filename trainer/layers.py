"""Layers that our models share: the results of Keras' own layers, with less work."""

from __future__ import annotations

from typing import Any

from keras import KerasTensor, config, layers, ops


class PooledConv2D(layers.Conv2D):  # type: ignore[misc]  # Keras ships no types
    """`Conv2D(filters, kernel_size, strides, padding="same", activation="relu")` and then `MaxPool2D(2)`.

    Variables, initial weights, values and gradients are those of the two layers, but pooling comes before bias and
    relu: the largest of four numbers is still the largest after the same bias is added to each and relu is taken, so
    both, and their gradients, have a quarter of the work. (Where a bias rounds two of the four to the same number, the
    gradient goes to the one that was larger before.)
    """

    def __init__(self, filters: int, kernel_size: int, strides: int = 1) -> None:
        super().__init__(filters, kernel_size, strides, padding="same")

    def call(self, inputs: Any) -> Any:
        """Return [batch, height, width, filters] of images [batch, ...] in channels-last order."""
        return ops.relu(max_pool(self.convolution_op(inputs, self.kernel)) + self.bias)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Return the shape of what `call` returns."""
        batch, height, width, filters = super().compute_output_shape(input_shape)
        return batch, height and height // 2, width and width // 2, filters


def max_pool(images: Any) -> Any:
    """Return the largest of each 2x2 pixels, [batch, height // 2, width // 2, channels].

    The gradient goes to the first of equal ones. On a CPU XLA finds that one by way of four arrays of positions, each
    as large as the images: 0.6 of the time of mnist-cnn's step with JAX. Comparing the four numbers gives the same to
    the bit, and takes a GPU 0.87 of the step's time, too. Which of the two is done is decided where the step is
    compiled, as for a TPU that is not here.
    """

    def pooled(each: Any) -> Any:
        return ops.max_pool(each, 2, strides=2)  # Keras on JAX needs strides said

    if config.backend() != "jax":
        return pooled(images)
    import jax

    return jax.lax.platform_dependent(images, cpu=_largest_of_four, cuda=_largest_of_four, default=pooled)


def _largest_of_four(images: Any) -> Any:
    batch, height, width, channels = images.shape
    whole = images[:, : height // 2 * 2, : width // 2 * 2]
    squares = ops.reshape(whole, (batch, height // 2, 2, width // 2, 2, channels))
    rows = _first_largest(squares[:, :, :, :, 0], squares[:, :, :, :, 1])
    return _first_largest(rows[:, :, 0], rows[:, :, 1])


def _first_largest(one: Any, other: Any) -> Any:
    """Return the larger of each two numbers, the first of equal ones, and what is not a number."""
    return ops.where((one >= other) | (one != one), one, other)


class CausalMask(layers.Layer):  # type: ignore[misc]
    """A causal mask for tokens [batch, length, ..]: each attends to itself and those before; bool [1, length,
    length], for `attention_mask`.

    The same as `use_causal_mask=True`, for which Keras counts positions by sums over ones (`cumsum`): XLA for GPUs
    computes those while it compiles, for minutes where a text has 1,024 tokens.
    """

    def call(self, tokens: Any) -> Any:
        """Return the mask."""
        positions = ops.arange(ops.shape(tokens)[1])
        return ops.greater_equal(positions[None, :, None], positions[None, None, :])

    def compute_output_spec(self, tokens: Any) -> Any:
        """Return what the mask is, without computing it."""
        return KerasTensor((1, tokens.shape[1], tokens.shape[1]), "bool")


class LearnedPositions(layers.Layer):  # type: ignore[misc]
    """Adds a learned vector for each position to tokens [batch, length, width]; starts as embeddings do."""

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Make the vectors [length, width]."""
        self.positions = self.add_weight(shape=input_shape[1:], initializer="uniform", name="positions")

    def call(self, inputs: Any) -> Any:
        """Return the sums, of the shape of the tokens."""
        return inputs + ops.cast(self.positions, inputs.dtype)
