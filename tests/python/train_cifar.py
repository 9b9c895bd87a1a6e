"""Trains ResNet-20 on CIFAR-10 with PyTorch, by the recipe of examples/resnet_cifar_main.cc; for scripts/check_cifar.

    train_cifar.py DIR --epochs 5 --seed 1      DIR has data_batch_1.bin ... (the binary version)

Prints one line per epoch: its number and the training accuracy, as the model was while the epoch went on.
"""

import argparse
import pathlib

import torch
from torch import nn
from torch.nn import functional as F


def read(folder):
    records = [
        torch.frombuffer(bytearray((pathlib.Path(folder) / f"data_batch_{i}.bin").read_bytes()), dtype=torch.uint8)
        for i in range(1, 6)
    ]
    rows = torch.cat(records).reshape(-1, 3073)
    return rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0].long()


def augment(pictures, generator):
    """Four pixels of padding, a random crop and flip of each, then mean 0 and deviation 1."""
    count = len(pictures)
    padded = F.pad(pictures, (4, 4, 4, 4))
    top = torch.randint(9, (count,), generator=generator)
    left = torch.randint(9, (count,), generator=generator)
    flip = torch.rand(count, generator=generator) < 0.5
    rows = top[:, None] + torch.arange(32)
    columns = left[:, None] + torch.arange(32)
    columns = torch.where(flip[:, None], columns.flip(1), columns)
    index = torch.arange(count)[:, None, None]
    x = padded.permute(0, 2, 3, 1)[index, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).float()
    flat = x.reshape(count, -1)
    deviation = flat.std(1, unbiased=False).clamp(min=1 / flat.shape[1] ** 0.5)
    return (x - flat.mean(1)[:, None, None, None]) / deviation[:, None, None, None]


def conv(inputs, outputs, kernel, stride):
    return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1, self.bn1 = conv(inputs, outputs, 3, stride), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = conv(outputs, outputs, 3, 1), nn.BatchNorm2d(outputs)
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def forward(self, x):
        h = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(h)) + self.shortcut(x))


def resnet20():
    layers, channels = [conv(3, 16, 3, 1), nn.BatchNorm2d(16), nn.ReLU()], 16
    for outputs, stride in ((16, 1), (32, 2), (64, 2)):
        for i in range(3):
            layers.append(Block(channels, outputs, stride if i == 0 else 1))
            channels = outputs
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight)
    return model.to(memory_format=torch.channels_last)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batch", type=int, default=128)
    flags = parser.parse_args()
    torch.manual_seed(flags.seed)
    generator = torch.Generator().manual_seed(flags.seed)
    pictures, labels = read(flags.folder)
    model = resnet20()
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.SGD(
        [{"params": decayed, "weight_decay": 2e-4}, {"params": others}], lr=0.1 * flags.batch / 128, momentum=0.9
    )
    for epoch in range(flags.epochs):
        right = 0
        for rows in torch.randperm(len(labels), generator=generator).split(flags.batch):
            optimizer.zero_grad()
            scores = model(augment(pictures[rows], generator).to(memory_format=torch.channels_last))
            F.cross_entropy(scores, labels[rows]).backward()
            optimizer.step()
            right += (scores.argmax(1) == labels[rows]).sum().item()
        print(f"epoch {epoch + 1} accuracy {right / len(labels):.4f}", flush=True)


if __name__ == "__main__":
    main()
