"""Writes tests/oracles/torchvision_models.json: what torchvision's models are called inside, and what they compute.

    python tests/python/make_torchvision_models.py > tests/oracles/torchvision_models.json     (torch and torchvision)

Weights would be too large to keep, so every tensor is filled by a rule that tests/models/models_test.cc has too: the
same rule, the same picture, and so the same scores.
"""

import json
import sys

import torch
import torchvision

MODELS = {
    "resnet18": lambda: torchvision.models.resnet18(num_classes=10),
    "resnet34": lambda: torchvision.models.resnet34(num_classes=10),
    "resnet50": lambda: torchvision.models.resnet50(num_classes=10),
    "resnet101": lambda: torchvision.models.resnet101(num_classes=10),
    "mobilenet_v2": lambda: torchvision.models.mobilenet_v2(num_classes=10),
    "mobilenet_v2_0.35": lambda: torchvision.models.mobilenet_v2(num_classes=10, width_mult=0.35),
}


def pattern(count, start):
    """Values from -0.5 to 0.5 that look like noise; exact in float32 on any machine."""
    return ((torch.arange(count) * 7919 + start * 104729) % 1021).float() / 1024 - 0.5


def fill(model):
    for start, (name, tensor) in enumerate(sorted(model.state_dict().items())):
        if name.endswith("num_batches_tracked"):
            continue
        values = pattern(tensor.numel(), start).reshape(tensor.shape)
        if tensor.dim() > 1:
            values = values * 5 / (tensor[0].numel() ** 0.5)
        elif name.endswith("running_var") or name.endswith("weight"):
            values = values / 4 + 1
        else:
            values = values / 4
        tensor.copy_(values)


def main():
    oracle = {"torch": torch.__version__, "torchvision": torchvision.__version__, "models": {}}
    picture = pattern(2 * 3 * 64 * 64, 0).reshape(2, 3, 64, 64) * 4
    with torch.no_grad():
        for name, make in MODELS.items():
            model = make().eval()
            fill(model)
            oracle["models"][name] = {
                "tensors": {key: list(value.shape) for key, value in sorted(model.state_dict().items())},
                "scores": [[round(score, 5) for score in row] for row in model(picture).tolist()],
            }
    json.dump(oracle, sys.stdout, separators=(",", ":"))
    print()


if __name__ == "__main__":
    main()
