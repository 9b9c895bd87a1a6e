"""Reads what examples/summaries wrote with the real TensorBoard; scripts/check_summary runs it."""

import io
import json
import math
import os
import re
import struct
import subprocess
import sys
import threading
import urllib.parse
import urllib.request

import numpy as np
from PIL import Image
from tensorboard.backend.event_processing import plugin_event_accumulator
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata as hparams_metadata
from tensorboard.util import tensor_util

NAME = os.path.splitext(os.path.basename(sys.argv[0]))[0]  # check_saved.py uses parts of this
RATES = ["0.02", "0.1", "0.5"]
checks = 0


def check(holds, what):
    global checks
    checks += 1
    if not holds:
        sys.exit(NAME + ": this does not hold: " + what)


def accumulate(folder):
    run = EventAccumulator(folder, size_guidance={"tensors": 0, "scalars": 0})
    run.Reload()
    return run


def plugin_tags(run, plugin):
    return sorted(run.PluginTagToContent(plugin))


def array(event):
    return tensor_util.make_ndarray(event.tensor_proto)


def check_run(folder):
    run = accumulate(folder)
    check(run.file_version == 2.0, "the file version is 2")
    check(plugin_tags(run, "scalars") == ["loss", "slope"], "the scalars are there")
    losses = run.Tensors("loss")
    check([e.step for e in losses] == list(range(40)), "a loss for each step")
    values = [float(array(e)) for e in losses]
    check(values == sorted(values, reverse=True), "the loss falls")
    check(all(abs(e.wall_time - losses[0].wall_time) < 60 for e in losses), "the times are those of the run")

    check(plugin_tags(run, "histograms") == ["residuals"], "the histogram is there")
    for event, point in zip(run.Tensors("residuals"), range(0, 40, 5)):
        buckets = array(event)
        check(event.step == point, "histograms every 5 steps")
        check(buckets.shape == (30, 3) and buckets.dtype == np.float64, "30 buckets")
        check(buckets[:, 2].sum() == 200, "every residual is counted")
        check((buckets[1:, 0] == buckets[:-1, 1]).all(), "one bucket ends where the next begins")

    check(plugin_tags(run, "images") == ["fit"], "the picture is there")
    for event in run.Tensors("fit"):
        width, height, png = event.tensor_proto.string_val
        picture = Image.open(io.BytesIO(png))
        picture.load()
        check((picture.width, picture.height) == (int(width), int(height)) == (96, 96), "its size")
        check(picture.mode == "RGB", "its colours")
        pixels = np.asarray(picture).reshape(-1, 3)
        check(len(np.unique(pixels, axis=0)) == 3, "white, grey and red")

    check(plugin_tags(run, "text") == ["about"], "the text is there")
    check(b"learning rate" in run.Tensors("about")[0].tensor_proto.string_val[0], "what it says")

    content = run.PluginTagToContent("hparams")
    start = hparams_metadata.parse_session_start_info_plugin_data(content["_hparams_/session_start_info"])
    check(start.hparams["optimizer"].string_value == "gradient descent", "a text as hyper-parameter")
    check(start.hparams["steps"].number_value == 40, "a number")
    check(start.hparams["noisy"].bool_value is True, "a bool")
    end = hparams_metadata.parse_session_end_info_plugin_data(content["_hparams_/session_end_info"])
    check(end.status == 1 and end.end_time_secs >= start.start_time_secs, "how the trial ended")


def check_simple_scalars(folder):
    run = accumulate(folder)
    losses = run.Tensors("loss") if "loss" in run.Tags()["tensors"] else run.Scalars("loss")
    check([e.step for e in losses] == list(range(40)), "scalars of the older form")


def check_resumed(folder):
    run = plugin_event_accumulator.EventAccumulator(folder, tensor_size_guidance={"scalars": 0})
    run.Reload()
    steps = [e.step for e in run.Tensors("loss")]
    check(steps == list(range(40)), "a resumed run shows each step once: %s" % steps)


class Server:
    """TensorBoard itself, on a free port of this machine."""

    def __init__(self, folder):
        command = [sys.executable, "-m", "tensorboard.main", "--logdir", folder, "--host", "127.0.0.1", "--port", "0"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.timer = threading.Timer(120, self.process.kill)
        self.timer.start()
        self.address = None
        for line in self.process.stderr:
            found = re.search(r"at (http://127\.0\.0\.1:\d+)", line)
            if found:
                self.address = found.group(1)
                break
        check(self.address is not None, "TensorBoard starts")
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.timer.cancel()
        self.process.kill()
        self.process.wait()

    def ask(self, path, body=None, **query):
        url = self.address + "/data/" + path + "?" + urllib.parse.urlencode(query)
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"} if data else {})
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30) as answer:
            return answer.read()

    def json(self, path, body=None, **query):
        return json.loads(self.ask(path, body, **query))


def wait_for_runs(server, count):
    for _ in range(60):
        runs = server.json("runs")
        if len(runs) >= count and len(server.json("plugin/scalars/tags")) >= count - 1:
            return runs
        threading.Event().wait(0.5)
    sys.exit("check_events: TensorBoard does not show the runs: %s" % runs)


def check_server_of_resumed_run(folder):
    with Server(folder) as server:
        wait_for_runs(server, 2)
        points = server.json("plugin/scalars/scalars", run="rate_0.1", tag="loss")
        check([p[1] for p in points] == list(range(40)), "the curve of a resumed run")
        check(points[20][2] > points[19][2], "has the second process's points")


def check_server(folder):
    with Server(folder) as server:
        runs = wait_for_runs(server, 4)
        check(sorted(runs) == sorted(["."] + ["rate_" + rate for rate in RATES]), "the runs")
        run = "rate_0.1"
        points = server.json("plugin/scalars/scalars", run=run, tag="loss")
        check([p[1] for p in points] == list(range(40)), "the curve")
        check(all(math.isfinite(p[2]) for p in points), "its values")
        histograms = server.json("plugin/histograms/histograms", run=run, tag="residuals")
        check(len(histograms) == 8 and len(histograms[0][2]) == 30, "the histograms")
        pictures = server.json("plugin/images/images", run=run, tag="fit", sample=0)
        check({p["step"] for p in pictures} <= set(range(0, 40, 5)) and pictures, "the pictures")
        png = server.ask("plugin/images/individualImage", **dict(urllib.parse.parse_qsl(pictures[-1]["query"])))
        check(png[:8] == b"\x89PNG\r\n\x1a\n" and struct.unpack(">II", png[16:24]) == (96, 96), "a picture")
        texts = server.json("plugin/text/text", run=run, tag="about")
        check("<strong>0.1</strong>" in texts[0]["text"], "the text, with its Markdown")
        experiment = server.json("plugin/hparams/experiment", {"experimentName": ""})
        check({h["name"] for h in experiment["hparamInfos"]} == {"learning_rate", "steps"}, "the hyper-parameters")
        check(experiment["metricInfos"][0]["displayName"] == "final loss", "the metric")
        wanted = {"experimentName": "", "allowedStatuses": ["STATUS_SUCCESS"], "startIndex": 0, "sliceSize": 10,
                  "colParams": [{"hparam": "learning_rate"}, {"metric": {"group": "", "tag": "loss"}}]}
        groups = server.json("plugin/hparams/session_groups", wanted)["sessionGroups"]
        check(sorted(str(g["hparams"]["learning_rate"]) for g in groups) == RATES, "a row for each trial")
        check(all(g["metricValues"][0]["value"] < 1 for g in groups), "with its final loss")


def main(logs):
    for rate in RATES:
        check_run(logs + "/new/rate_" + rate)
    check_simple_scalars(logs + "/old/rate_0.1")
    check_resumed(logs + "/resumed/rate_0.1")
    check_server(logs + "/new")
    check_server_of_resumed_run(logs + "/resumed")
    print("check_events: TensorBoard reads everything (%d checks)" % checks)


if __name__ == "__main__":
    main(sys.argv[1])
