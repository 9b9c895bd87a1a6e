"""Measures tandem's training step of MobileNetV2 beside PyTorch's; bench/models prepares and runs it.

Each is a process (bench_models, models_worker.py) bound to the same core, with one thread. They take turns in short
rounds; a rate is the median over the rounds, a ratio the median of the ratios within each round, with the bounds of
their middle half beside it. A bar that is not met is a measurement, not a failure.
"""

import argparse
import os
import pathlib
import signal
import sys
import tempfile
import time

from compare import PAUSE_SECONDS, Failed, Process, cpu_and_load, positive, spread
from compare_worker import SILENCE_SECONDS

BENCH = pathlib.Path(__file__).resolve().parent
PROGRAM = BENCH.parent / "build/release/bin/bench_models"
TANDEM, PYTORCH = "tandem", "PyTorch"
DTYPES = ("fp32", "bf16")


def take_turns(contestants, flags):
    """Images per second by (contestant, dtype) and round; the first round does not count."""
    rates = {}
    turns = [(name, dtype) for dtype in DTYPES for name in contestants]
    for number in range(flags.rounds + 1):
        first = number % len(turns)
        for name, dtype in turns[first:] + turns[:first]:
            time.sleep(PAUSE_SECONDS)
            process = contestants[name]
            process.write(f"{dtype} {flags.steps}")
            seconds = float(process.read(time.monotonic() + SILENCE_SECONDS))
            if number > 0:
                rates.setdefault((name, dtype), []).append(flags.batch * flags.steps / seconds)
    return rates


def report(rates):
    for (name, dtype), of_rounds in sorted(rates.items(), key=lambda item: item[0][1]):
        middle, low, high = spread(of_rounds)
        print(f"  {f'{name}, {dtype}':<34} {middle:8.2f} images/s   ({low:.2f} to {high:.2f})")
    bf16 = "bf16" in pathlib.Path("/proc/cpuinfo").read_text()
    ratios = (
        ((TANDEM, "fp32"), (PYTORCH, "fp32"), 1.0),
        ((TANDEM, "bf16"), (PYTORCH, "bf16"), None),
        ((TANDEM, "bf16"), (TANDEM, "fp32"), 1.0 if bf16 else None),
    )
    for one, other, bar in ratios:
        middle, low, high = spread([a / b for a, b in zip(rates[one], rates[other])])
        verdict = "" if bar is None else f"   at least {bar:.2f}   {'met' if middle >= bar else 'NOT met'}"
        print(f"  {' '.join(one) + ' / ' + ' '.join(other):<34} {middle:8.2f}            ({low:.2f} to {high:.2f}){verdict}")
    if not bf16:
        print("  this CPU has no bfloat16 instructions: bf16 is not expected to be faster")


def parse_flags():
    parser = argparse.ArgumentParser(
        prog="models",
        description="Measures a training step of MobileNetV2 beside PyTorch's, on one core.",
        allow_abbrev=False,
    )
    parser.add_argument("--batch", type=positive, default=16, help="pictures in a step (%(default)s)")
    parser.add_argument("--size", type=positive, default=224, help="height and width (%(default)s)")
    parser.add_argument("--steps", type=positive, default=2, help="in a turn (%(default)s)")
    parser.add_argument("--rounds", type=positive, default=9, help="turns of each (%(default)s)")
    parser.add_argument("--check", action="store_true", help=argparse.SUPPRESS)  # the flags, and do nothing
    parser.error = lambda message: parser.exit(2, f"models: {message}\n")
    return parser.parse_args()


def main():
    flags = parse_flags()
    if flags.check:
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    print(cpu_and_load(os.getloadavg()[0]))
    core = max(os.sched_getaffinity(0))
    common = ["--batch", flags.batch, "--size", flags.size]
    commands = {
        TANDEM: [PROGRAM, "--worker", *common],
        PYTORCH: [sys.executable, BENCH / "models_worker.py", *common],
    }
    contestants = {}
    with tempfile.TemporaryDirectory(prefix="tandem_models_") as folder:
        try:
            for name, command in commands.items():
                contestants[name] = Process(
                    ["taskset", "-c", core, *command], {"OMP_NUM_THREADS": "1"}, pathlib.Path(folder) / f"{name}.log"
                )
                print(f"  {name:<34} {contestants[name].read(time.monotonic() + SILENCE_SECONDS)}", flush=True)
            rates = take_turns(contestants, flags)
        except Failed as failure:
            print(f"models: {failure}", file=sys.stderr)
            return 1
        finally:
            for process in contestants.values():
                process.end(patience=10)
    print(f"\nMobileNetV2, {flags.batch} pictures of {flags.size}x{flags.size}, one thread; middle half of {flags.rounds} rounds")
    report(rates)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
