"""Opens the --model_dir of trainings with Python's safetensors, torch and tensorboard; scripts/check_saved runs it."""

import hashlib
import json
import math
import os
import re
import subprocess
import sys

import tensorboard
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

import check_events
from check_events import accumulate, array, check, plugin_tags

DTYPES = {"F32": torch.float32, "F64": torch.float64, "I64": torch.int64, "U8": torch.uint8}
CHUNK_BYTES = 4 << 20


def crc_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


CRC_TABLE = crc_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CRC_TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return "%08x" % (crc ^ 0xFFFFFFFF)


class Block(nn.Module):
    def __init__(self, channels_in, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.downsample = None
        if stride != 1 or channels_in != channels:
            convolution = nn.Conv2d(channels_in, channels, 1, stride, bias=False)
            self.downsample = nn.Sequential(convolution, nn.BatchNorm2d(channels))

    def forward(self, x):
        h = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        return (h + (x if self.downsample is None else self.downsample(x))).relu()


class ResNet(nn.Module):
    """What a user of PyTorch writes for the ResNet of resnet_cifar_main."""

    def __init__(self, size):
        super().__init__()

        def stage(channels_in, channels, stride):
            more = [Block(channels, channels, 1) for _ in range((size - 2) // 6 - 1)]
            return nn.Sequential(Block(channels_in, channels, stride), *more)

        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = stage(16, 16, 1)
        self.layer2 = stage(16, 32, 2)
        self.layer3 = stage(32, 64, 2)
        self.fc = nn.Linear(64, 10)

    def forward(self, x):
        h = self.layer3(self.layer2(self.layer1(self.bn1(self.conv1(x)).relu())))
        return self.fc(h.mean((2, 3)))


def read(path):
    with open(path, "rb") as file:
        return file.read()


def check_manifest(folder):
    """The commit mark, the checksums and the sizes, from the bytes alone."""
    text = read(folder + "/manifest.json")
    commit = read(folder + "/COMMIT").decode()
    check(commit == "sha256 %s\n" % hashlib.sha256(text).hexdigest(), folder + ": COMMIT is of manifest.json")
    manifest = json.loads(text)
    check(manifest["format"] == "tandem-checkpoint-1" and manifest["chunk_bytes"] == CHUNK_BYTES, folder + ": the format")
    step, generation = re.fullmatch(r"step-(\d{12})\.g(\d{6})", os.path.basename(folder)).groups()
    check((manifest["step"], manifest["generation"]) == (int(step), int(generation)), folder + ": its name is its step's")
    files = {"manifest.json", "COMMIT"} | {shard["file"] for shard in manifest["shards"]}
    check(set(os.listdir(folder)) == files, folder + ": nothing is missing, nothing is left over")
    for shard in manifest["shards"]:
        data = read(folder + "/" + shard["file"])
        check(len(data) == shard["bytes"], "%s/%s: its size" % (folder, shard["file"]))
        sums = [crc32c(data[begin:begin + CHUNK_BYTES]) for begin in range(0, len(data), CHUNK_BYTES)]
        check(sums == shard["crc32c"], "%s/%s: its checksums" % (folder, shard["file"]))
    return manifest


def check_tensors(folder, manifest):
    """What safetensors loads is what the manifest says. Returns all of it."""
    state = {}
    for shard in manifest["shards"]:
        path = folder + "/" + shard["file"]
        data = read(path)
        tensors = load_file(path)
        with safe_open(path, framework="pt") as file:
            check(file.metadata() == {"format": "pt"}, path + ": the metadata say that it is PyTorch's")
        check(set(tensors) == {t["name"] for t in shard["tensors"]}, path + ": the names of the manifest")
        for told in shard["tensors"]:
            name = path + ": " + told["name"]
            tensor = tensors[told["name"]]
            check(tensor.dtype == DTYPES[told["dtype"]] and list(tensor.shape) == told["shape"], name + ": dtype and shape")
            check(tensor.numpy().tobytes() == data[told["begin"]:told["end"]], name + ": where its bytes are")
            check(bool(torch.isfinite(tensor).all()), name + ": finite")
        check(not set(state) & set(tensors), path + ": no tensor is in two shards")
        state.update(tensors)
    return state


def check_inspect(tandem, folder, manifest, state):
    """`tandem checkpoint` says the same as Python."""
    subprocess.run([tandem, "checkpoint", "verify", folder], check=True, timeout=60, stdout=subprocess.DEVNULL)
    output = subprocess.run([tandem, "checkpoint", "inspect", "--json", folder], check=True, timeout=60, capture_output=True)
    told = json.loads(output.stdout)
    check(told["step"] == manifest["step"] and told["meta"] == manifest["meta"], folder + ": inspect shows the manifest")
    shown = {t["name"]: (DTYPES[t["dtype"]], t["shape"], t["bytes"]) for t in told["tensors"]}
    loaded = {name: (t.dtype, list(t.shape), t.numel() * t.element_size()) for name, t in state.items()}
    check(len(told["tensors"]) == len(shown) and shown == loaded, folder + ": inspect shows what safetensors loads")


def check_state(folder, manifest, state, size):
    """What the names promise: weights that a PyTorch module takes, an optimizer's state, each replica's statistics."""
    step, meta = manifest["step"], manifest["meta"]
    weights = {name: tensor for name, tensor in state.items() if "@" not in name}
    plain = [{"@" not in t["name"] for t in shard["tensors"]} for shard in manifest["shards"]]
    check(plain == [{True}] * meta["tasks"] + [{False}] * meta["tasks"], folder + ": the first shards have the plain names")
    model = ResNet(size).eval()
    model.load_state_dict(weights)  # strict: throws if a name or a shape is another
    check(all(torch.equal(model.state_dict()[name], tensor) for name, tensor in weights.items()), folder + ": torch has them")
    with torch.no_grad():
        check(bool(torch.isfinite(model(torch.ones(2, 3, 32, 32))).all()), folder + ": the model computes")

    parameters = dict(model.named_parameters())
    momenta = {name: state[name + "@momentum_buffer"] for name in parameters}
    check(all(momenta[name].shape == p.shape for name, p in parameters.items()), folder + ": a momentum for each parameter")
    check(any(bool(m.any()) for m in momenta.values()), folder + ": the momenta are those of a training")
    replicas = range(meta["replicas"])
    buffers = dict(model.named_buffers())
    copies = {name: [state["%s@replica%d" % (name, i)] for i in replicas] for name in buffers} if len(replicas) > 1 else {}
    for name, mean in buffers.items():
        each = torch.stack(copies.get(name, [mean]))  # of one replica there is no second copy
        if name.endswith("num_batches_tracked"):
            check(bool((each == step).all()) and mean == step, "%s: %s counts the steps" % (folder, name))
        else:
            check(torch.allclose(mean, each.mean(0)), "%s: %s is the mean over the replicas" % (folder, name))
    wanted = set(weights) | {name + "@momentum_buffer" for name in parameters}
    wanted |= {"%s@replica%d" % (name, i) for name in copies for i in replicas}
    wanted |= {"@metrics.replica%d" % i for i in replicas}
    for task in range(meta["tasks"]):
        wanted |= {"@generator.task%d" % task, "@position.train.task%d" % task}
    rest = {name for name in state if name not in wanted}
    check(wanted <= set(state) and all(name.startswith("@callback") for name in rest), folder + ": no other names: %s" % rest)
    check(meta["global_step"] == meta["progress"]["steps"] == step, folder + ": the global step")
    check(all(int(state["@position.train.task%d" % task][-1]) == step for task in range(meta["tasks"])),
          folder + ": the position in the data")


def check_run(tandem, folder, steps, shards, size):
    """Every checkpoint of a run, and the pointer to the newest. Returns the states by step, and the last manifest."""
    checkpoints = folder + "/checkpoints"
    folders = ["step-%012d.g000001" % step for step in steps]
    check(set(os.listdir(checkpoints)) == {"latest", *folders}, folder + ": a checkpoint for each of the steps")
    check(read(checkpoints + "/latest").decode().strip() == folders[-1], folder + ": latest names the newest")
    states = {}
    for step, name in zip(steps, folders):
        path = checkpoints + "/" + name
        manifest = check_manifest(path)
        check(len(manifest["shards"]) == shards, path + ": %d shards" % shards)
        states[step] = check_tensors(path, manifest)
        check_inspect(tandem, path, manifest, states[step])
        check_state(path, manifest, states[step], size)
    return states, manifest


def check_summaries(folder, manifest):
    """The event files, and that they say what the checkpoint does."""
    check(set(os.listdir(folder)) == {"checkpoints", "train"}, folder + ": one run, train")
    check(len(os.listdir(folder + "/train")) == 1, folder + ": only the chief writes")
    run = accumulate(folder + "/train")
    check(run.file_version == 2.0, folder + ": the file version is 2")
    wanted = {"epoch_loss", "epoch_accuracy", "epoch_learning_rate", "epoch_steps_per_second"}
    check(wanted <= set(plugin_tags(run, "scalars")), folder + ": the scalars of an epoch")
    for tag in plugin_tags(run, "scalars"):
        check(all(math.isfinite(float(array(event))) for event in run.Tensors(tag)), folder + ": %s is finite" % tag)
    (loss,) = run.Tensors("epoch_loss")
    progress = manifest["meta"]["progress"]
    mean = float(progress["loss_sum"]) / float(progress["rows"])
    check(loss.step == 0 and math.isclose(float(array(loss)), mean, rel_tol=1e-6), folder + ": the loss of the checkpoint")
    return float(array(loss))


def main(tandem, runs):
    check(crc32c(b"123456789") == "e3069283", "this checksum is CRC-32C")
    one, one_manifest = check_run(tandem, runs + "/one", [3, 6], 2, 20)
    two, two_manifest = check_run(tandem, runs + "/two", [3, 6], 4, 20)
    _, large_manifest = check_run(tandem, runs + "/large", [1], 2, 110)
    check(max(len(shard["crc32c"]) for shard in large_manifest["shards"]) > 1, "a shard of several chunks")
    check(not torch.equal(one[3]["conv1.weight"], one[6]["conv1.weight"]), "the model is trained between the checkpoints")
    for step in one:
        own = {name for name in two[step] if re.search(r"@(generator|position)", name)}
        check(set(one[step]) | own == set(two[step]), "one process and two workers save the same names")
        differ = [name for name, tensor in two[step].items() if name not in own and not torch.equal(tensor, one[step][name])]
        check(not differ, "one process of two replicas and two workers train the same bits, not so: %s" % differ)
    losses = [check_summaries(runs + "/" + name, manifest)
              for name, manifest in (("one", one_manifest), ("two", two_manifest), ("large", large_manifest))]
    check(losses[0] == losses[1], "the curves of one process and of two workers are the same")
    versions = "safetensors %s, torch %s, tensorboard %s" % (
        sys.modules["safetensors"].__version__, torch.__version__, tensorboard.__version__)
    print("check_saved: %d checks hold, with %s" % (check_events.checks, versions))


main(*sys.argv[1:])
