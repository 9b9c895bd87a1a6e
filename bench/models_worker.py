"""PyTorch's training step of torchvision's MobileNetV2, for bench/models.

    models_worker.py --batch 16 --size 224

Says what it is in a line, then answers each line, "fp32" or "bf16" and a number of steps, with the seconds that they
took after one that does not count. The network is written out here as torchvision has it, which need not be
installed: bench/models.cc runs the same one.
"""

import argparse
import os
import sys
import time

import torch
from torch import nn

# expansion, channels, repeats, stride
STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
PARAMETERS = 3504872


def layer(inputs, outputs, kernel=1, stride=1, groups=1):
    return [
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU6(inplace=True),
    ]


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride, expansion):
        super().__init__()
        hidden = inputs * expansion
        layers = layer(inputs, hidden) if expansion != 1 else []
        layers += layer(hidden, hidden, 3, stride, groups=hidden)
        layers += [nn.Conv2d(hidden, outputs, 1, bias=False), nn.BatchNorm2d(outputs)]
        self.layers = nn.Sequential(*layers)
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x):
        return x + self.layers(x) if self.adds else self.layers(x)


def mobilenet_v2():
    layers, channels = layer(3, 32, 3, 2), 32
    for expansion, outputs, repeats, stride in STAGES:
        for i in range(repeats):
            layers.append(Block(channels, outputs, stride if i == 0 else 1, expansion))
            channels = outputs
    layers += layer(channels, 1280)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(1280, 1000))


def contestant(flags, dtype):
    model = mobilenet_v2().to(memory_format=torch.channels_last).train()
    if sum(p.numel() for p in model.parameters()) != PARAMETERS:
        raise SystemExit("this is not MobileNetV2")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-5, eps=1e-7)
    x = torch.randn(flags.batch, 3, flags.size, flags.size).to(memory_format=torch.channels_last)
    y = torch.randint(1000, (flags.batch,))

    def run(steps):
        for _ in range(steps):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == "bf16"):
                scores = model(x)
            loss = nn.functional.cross_entropy(scores.float(), y)
            loss.backward()
            optimizer.step()
            loss.item()  # a training loop shows it

    return run


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--size", type=int, required=True)
    flags = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    torch.manual_seed(1)
    torch.set_num_threads(1)
    runs = {dtype: contestant(flags, dtype) for dtype in ("fp32", "bf16")}
    for run in runs.values():
        run(2)
    print(f"PyTorch {torch.__version__}", file=answers)
    for line in sys.stdin:
        dtype, steps = line.split()
        runs[dtype](1)
        start = time.perf_counter()
        runs[dtype](int(steps))
        print(time.perf_counter() - start, file=answers)


if __name__ == "__main__":
    main()
