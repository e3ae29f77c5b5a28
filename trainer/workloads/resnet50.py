"""`resnet50`: ResNet-50 on photos by class, from random weights.

The network is Keras' own (keras.applications.ResNet50): K. He, X. Zhang, S. Ren, J. Sun, Deep Residual Learning for
Image Recognition (arXiv:1512.03385), with the stride in the first 1x1 convolution of a stage, as published: 3.8e9
multiply-adds an image (their table 1). PyTorch's and MLPerf's "v1.5" has it in the 3x3 one: 4.1e9; times of the two are
not comparable. Batch 256, momentum 0.9 and learning rate 0.1 are theirs; their steps of the learning rate, weight decay
and augmentation are not here.
"""

from __future__ import annotations

from typing import Any

from trainer.workloads.base import ModelFigures, PrepareOptions, Workload, halved
from trainer.workloads.signature import images

_STEM = 64
_STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))  # filters of the bottleneck, blocks


def build_model(image_shape: tuple[int, ...], classes: int) -> Any:
    """Return ResNet-50: float32 images [batch, *image_shape] in 0..1, sides from 32 on, to logits [batch, classes].

    Batch normalisation takes mean and variance over each replica's share of the batch, as is usual. Its running means
    keep 0.9 a step, as PyTorch's do unasked (its momentum of 0.1): with Keras' 0.99 the weights of a run of a few
    hundred steps are evaluated with means of long ago. The last one of each block starts with scale 0, so that a block
    changes nothing at first: P. Goyal et al., Accurate, Large Minibatch SGD, arXiv:1706.02677, section 5.1.
    """
    from keras import Input, Sequential, applications, layers, ops

    network = applications.ResNet50(weights=None, input_shape=image_shape, classes=classes, classifier_activation=None)
    for layer in network.layers:
        if isinstance(layer, layers.BatchNormalization):
            layer.momentum = 0.9
        if layer.name.endswith("_3_bn"):
            layer.gamma.assign(ops.zeros(layer.gamma.shape))
    return Sequential([Input(image_shape), layers.Rescaling(2.0, offset=-1.0), network])


def figures(image_shape: tuple[int, ...], classes: int) -> ModelFigures:
    """Count by the layers of He et al.'s table 1.

    Two operations for each multiply-add; backward twice as many as forward, less the gradient of the images.
    Convolutions have biases here, and each is followed by batch normalisation, with four numbers a channel.
    """
    height, width, channels = image_shape
    side = [halved(height), halved(width)]
    stem = 7 * 7 * channels * _STEM
    multiply_adds = first = stem * side[0] * side[1]
    parameters = stem + 5 * _STEM
    side, inputs = [halved(each) for each in side], _STEM
    for stage, (filters, blocks) in enumerate(_STAGES):
        if stage:
            side = [halved(each) for each in side]
        outputs = 4 * filters
        shortcut = inputs * outputs
        bottlenecks = inputs * filters + (blocks - 1) * outputs * filters + blocks * (9 * filters + outputs) * filters
        multiply_adds += (shortcut + bottlenecks) * side[0] * side[1]
        parameters += shortcut + bottlenecks + 5 * (outputs + blocks * (2 * filters + outputs))
        inputs = outputs
    multiply_adds += inputs * classes
    parameters += (inputs + 1) * classes
    return ModelFigures(parameters, 6 * multiply_adds - 2 * first)


WORKLOAD = Workload(
    name="resnet50",
    title="any photos in class folders, ResNet-50 at 224x224",
    data_kind="photos",
    signature=images((224, 224, 3), 1000),
    outputs="logits",
    default_batch_size=256,
    default_epochs=90,
    optimizer="momentum",
    learning_rate=0.1,
    xla_on_cpu=False,  # as for mnist-cnn: XLA's CPU convolutions are far slower than oneDNN's
    build_model=build_model,
    prepare=PrepareOptions(image_size=224),
    figures=figures,
)
