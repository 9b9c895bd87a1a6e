"""Opens what tests/train/export_model.cc wrote with Python's torch and safetensors; scripts/check_export runs it."""

import sys

import torch
from safetensors import safe_open
from safetensors.torch import load_file

checks = 0


def check(holds, what):
    global checks
    checks += 1
    if not holds:
        sys.exit("check_export: this does not hold: " + what)


def check_model(path):
    weights = load_file(path + ".safetensors")
    with safe_open(path + ".safetensors", framework="pt") as file:
        check(file.metadata() == {"format": "pt"}, path + ": the metadata say that it is PyTorch's")
    expected = load_file(path + ".expected.safetensors")
    x, y = expected["x"], expected["y"]

    model = torch.jit.load(path + ".pt")
    check(not model.training, path + ": it is in evaluation mode")
    state = model.state_dict()
    check(set(state) == set(weights), path + ": state_dict has the names of the weights")
    for name, value in weights.items():
        check(state[name].dtype == value.dtype and torch.equal(state[name], value), f"{path}: {name} is the same")
    trainable = {name for name, _ in model.named_parameters()}
    running = {name for name in weights if "running" in name or "num_batches" in name}
    check(trainable == set(weights) - running, path + ": parameters and buffers are told apart")
    check(all(p.requires_grad for p in model.parameters()), path + ": the parameters can be trained further")

    with torch.no_grad():
        for rows in (1, 5, len(x)):
            for _ in range(3):  # the later calls are optimised
                difference = (model(x[:rows]) - y[:rows]).abs().max().item()
                check(difference < 1e-4, f"{path}: {rows} rows differ by {difference}")
        check(torch.allclose(model(x=x), y, atol=1e-4), path + ": the argument is called x")

    # Without the C++ program: zeros in, what the loaded weights say out.
    model.load_state_dict({name: torch.zeros_like(value) for name, value in weights.items()})
    with torch.no_grad():
        check(model(x).abs().max().item() == 0, path + ": load_state_dict reaches the computation")
    model.load_state_dict(weights)
    model(x).sum().backward()
    check(all(p.grad is not None for p in model.parameters()), path + ": gradients reach every parameter")


for one in ("lenet", "resnet"):
    check_model(sys.argv[1] + "/" + one)
print(f"check_export: {checks} checks hold, with torch {torch.__version__}")
