"""Makes tests/summary/golden/events, with TensorBoard's own messages: what summary_test compares tandem's bytes with.

    python3 -m venv .cache/tensorboard && .cache/tensorboard/bin/pip install tensorboard
    .cache/tensorboard/bin/python tests/python/make_golden_events.py tests/summary/golden/events
"""

import struct
import sys

import numpy as np

from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.plugins.histogram import summary_v2 as histogram
from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2
from tensorboard.plugins.hparams import summary_v2 as hparams
from tensorboard.plugins.image import metadata as image_metadata
from tensorboard.plugins.scalar import summary_v2 as scalar
from tensorboard.plugins.text import summary_v2 as text
from tensorboard.util import tensor_util

WALL_TIME = 1700000000.5


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def record(data):
    length = struct.pack("<Q", len(data))
    return length + masked(length) + data + masked(data)


def event(**fields):
    return event_pb2.Event(wall_time=WALL_TIME, **fields)


def as_tensorflow_writes(summary):
    """TensorFlow's kernels put numbers into tensor_content where the Python functions fill lists."""
    for value in summary.value:
        tensor = value.tensor
        for field, letter in (("float_val", "f"), ("double_val", "d")):
            numbers = list(getattr(tensor, field))
            if numbers:
                tensor.ClearField(field)
                tensor.tensor_content = struct.pack("<%d%s" % (len(numbers), letter), *numbers)
    return summary


def images(tag, strings):
    summary = summary_pb2.Summary()
    summary.value.add(
        tag=tag,
        metadata=image_metadata.create_summary_metadata(display_name=None, description=None),
        tensor=tensor_util.make_tensor_proto(strings, dtype=np.object_),
    )
    return summary


def in_order(summary):
    """A map of Python's protobuf is in any order; tandem's is in that of the names."""
    plugin = summary.value[0].metadata.plugin_data
    data = plugin_data_pb2.HParamsPluginData.FromString(plugin.content)
    plugin.content = data.SerializeToString(deterministic=True)
    return summary


def session_end():
    data = plugin_data_pb2.HParamsPluginData(
        session_end_info=plugin_data_pb2.SessionEndInfo(
            status=api_pb2.Status.Value("STATUS_SUCCESS"), end_time_secs=WALL_TIME
        )
    )
    return hparams._summary_pb(metadata.SESSION_END_INFO_TAG, data)


def simple(tag, value):
    return summary_pb2.Summary(value=[summary_pb2.Summary.Value(tag=tag, simple_value=value)])


def events():
    yield event(file_version="brain.Event:2", source_metadata=event_pb2.SourceMetadata(writer="tandem"))
    for _ in range(2):
        yield event(step=100, session_log=event_pb2.SessionLog(status=event_pb2.SessionLog.START))
    yield event(step=0, summary=as_tensorflow_writes(scalar.scalar_pb("loss", 0.1)))
    yield event(step=-1, summary=as_tensorflow_writes(scalar.scalar_pb("loss", float("inf"))))
    yield event(step=2**40, summary=simple("loss", 2.5))
    values = [((i * 37) % 101) / 7.0 - 3.0 for i in range(101)]
    yield event(step=3, summary=as_tensorflow_writes(histogram.histogram_pb("weights", values, buckets=7)))
    yield event(step=4, summary=as_tensorflow_writes(histogram.histogram_pb("same", [2.0, 2.0], buckets=3)))
    yield event(step=5, summary=as_tensorflow_writes(histogram.histogram_pb("none", [], buckets=2)))
    yield event(step=6, summary=images("digits", [b"2", b"1", b"not really", b"PNG files"]))
    yield event(step=7, summary=text.text_pb("note", "**bold** \u00fc"))
    values = {"optimizer": "sgd", "batch_size": 128, "learning_rate": 1e-05, "nesterov": True}
    yield event(summary=in_order(hparams.hparams_pb(values, start_time_secs=WALL_TIME)))
    yield event(summary=session_end())
    yield event(
        summary=hparams.hparams_config_pb(
            hparams=[
                hparams.HParam("optimizer", hparams.Discrete(["adam", "sgd"]), description="which"),
                hparams.HParam("learning_rate", hparams.RealInterval(0.0, 1.0), display_name="rate"),
                hparams.HParam("nesterov", hparams.Discrete([False, True])),
                hparams.HParam("free"),
            ],
            metrics=[hparams.Metric("epoch_loss", group="validation", display_name="loss"), hparams.Metric("accuracy")],
            time_created_secs=WALL_TIME,
        )
    )


with open(sys.argv[1], "wb") as file:
    for e in events():
        file.write(record(e.SerializeToString(deterministic=True)))
