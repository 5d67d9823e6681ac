"""tf.train.Example messages, encoded and decoded without TensorFlow.

The message classes are those that tensorflow-datasets carries for machines without TensorFlow;
their wire format is TensorFlow's.

References:
    tensorflow/core/example/example.proto and feature.proto.
"""

from collections.abc import Mapping

import numpy as np
from google.protobuf.message import DecodeError
from tensorflow_datasets.proto.tf_example_generated_pb2 import Example

from bert_lamb.data.errors import DataError

_DTYPES = {"int64_list": np.int64, "float_list": np.float32, "bytes_list": np.object_}


def encode_example(features: Mapping[str, np.ndarray]) -> bytes:
    """Encodes named features; equal features give equal bytes, whatever their order.

    Args:
        features: integers [n], stored as int64, or floats [n], stored as float32.
    """
    example = Example()
    for name, values in features.items():
        feature = example.features.feature[name]
        kind = feature.float_list if values.dtype.kind == "f" else feature.int64_list
        kind.value.extend(values.tolist())
    return example.SerializeToString(deterministic=True)


def decode_example(data: bytes) -> dict[str, np.ndarray]:
    """Decodes a message; numbers may be packed, as TensorFlow writes them, or one by one.

    Returns:
        The features by name: int64 [n], float32 [n], or bytes objects [n].

    Raises:
        DataError: if `data` is not such a message.
    """
    try:
        example = Example.FromString(data)
    except DecodeError as error:
        raise DataError(
            f"not a tf.train.Example ({len(data)} bytes); expected records of such messages"
        ) from error
    features: dict[str, np.ndarray] = {}
    for name, feature in example.features.feature.items():
        kind = feature.WhichOneof("kind")
        if kind is not None:
            features[name] = np.array(getattr(feature, kind).value[:], _DTYPES[kind])
    return features
