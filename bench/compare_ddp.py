"""One of the two processes of PyTorch's DistributedDataParallel that bench/compare measures.

    compare_ddp.py RANK STORE_FILE

Trains the network of src/models/resnet.cc with the optimizer, the kind of batch and the memory layout of
bench/step_speed.cc, on one thread. Protocol: see compare_worker.py.
"""

import datetime
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import compare_worker as worker

RANKS = 2


class BasicBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x):
        h = self.bn1(self.conv1(x)).relu_()
        h = self.bn2(self.conv2(h))
        h += self.downsample(x)
        return h.relu_()


class ResNetCifar(nn.Module):
    def __init__(self, size=20, classes=10):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        blocks = []
        inputs = 16
        for outputs, stride in ((16, 1), (32, 2), (64, 2)):
            for i in range((size - 2) // 6):
                blocks.append(BasicBlock(inputs, outputs, stride if i == 0 else 1))
                inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(64, classes)

    def forward(self, x):
        h = self.bn1(self.conv1(x)).relu_()
        return self.fc(self.blocks(h).mean((2, 3)))


def sgd(network):
    """Weight decay on the kernels alone, as tandem's kernels_only does."""
    parameters = list(network.parameters())
    return torch.optim.SGD(
        [
            {"params": [p for p in parameters if p.dim() > 1], "weight_decay": worker.WEIGHT_DECAY},
            {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0},
        ],
        lr=worker.LEARNING_RATE,
        momentum=worker.MOMENTUM,
    )


class Trainer:
    def __init__(self, rank, rows):
        torch.manual_seed(1 + rank)
        self.x = torch.randn(rows, 3, 32, 32).to(memory_format=torch.channels_last)
        self.y = torch.randint(10, (rows,))
        network = ResNetCifar().to(memory_format=torch.channels_last)
        worker.check_parameters(sum(p.numel() for p in network.parameters()))
        # Two settings that help it: gradients live in the buckets instead of being copied there, and the
        # running statistics of batch norm stay with their replica, as tandem's do.
        self.network = DistributedDataParallel(network, gradient_as_bucket_view=True, broadcast_buffers=False)
        self.optimizer = sgd(network)

    def run(self, steps):
        for _ in range(steps):
            loss = cross_entropy(self.network(self.x), self.y)
            loss.item()  # tandem's step returns it too
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


def main():
    rank, store = int(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method="file://" + store,
        rank=rank,
        world_size=RANKS,
        timeout=datetime.timedelta(seconds=worker.SILENCE_SECONDS),
    )
    trainers = {rows: Trainer(rank, rows) for rows in worker.SIZES}
    # Both ranks begin a turn together; only then the clock runs.
    worker.serve(f"PyTorch {torch.__version__}", {rows: t.run for rows, t in trainers.items()}, begin=dist.barrier)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
