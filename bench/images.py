"""Measures tandem beside tf.data and Pillow on pictures and records; bench/images prepares and runs it.

Each is a process (bench_images --worker, images_worker.py) bound to the same core, with one thread that works. They
take turns in short rounds, so the ratios hold on a machine that is not quite idle, where the rates do not. A rate is
the median over the rounds; a ratio is the median of the ratios within each round, with the bounds of their middle
half beside it. All read files that lie in memory.

A bar that is not met is a measurement, not a failure. The exit code is 1 if a contestant failed, 2 for a wrong flag.
"""

import argparse
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from compare import PAUSE_SECONDS, Failed, Process, cpu_and_load, positive, spread
from compare_worker import SILENCE_SECONDS

BENCH = pathlib.Path(__file__).resolve().parent
PROGRAM = BENCH.parent / "build/release/bin/bench_images"
TANDEM, TENSORFLOW, PILLOW = "tandem", "tf.data", "Pillow"
JOBS = {
    "scaled": "JPEG decoded no larger than needed, resized: images/s",
    "full": "JPEG decoded at full size, resized: images/s",
    "large": "TFRecord, a picture each: GB/s",
    "small": "TFRecord, 1000 bytes each: GB/s",
}
# At least: what a job of tandem's is, over what of whose. tf.data decodes at full size unless told a ratio, which fits
# all pictures or none: "full" is what a program there does.
BARS = (("scaled", TENSORFLOW, "full", 1.5), ("large", TENSORFLOW, "large", 2), ("small", TENSORFLOW, "small", 2))
RATIOS = (
    ("scaled", TENSORFLOW, "full"),
    ("scaled", TENSORFLOW, "scaled"),
    ("scaled", PILLOW, "scaled"),
    ("full", TENSORFLOW, "full"),
    ("full", PILLOW, "full"),
    ("large", TENSORFLOW, "large"),
    ("small", TENSORFLOW, "small"),
)


def python_with_pillow():
    """This one, or Debian's; nothing if neither has it."""
    for python in (sys.executable, "/usr/bin/python3"):
        if subprocess.run([python, "-c", "import PIL"], stderr=subprocess.DEVNULL).returncode == 0:
            return python
    return None


class Contestant:
    def __init__(self, name, command, core, folder):
        self.name = name
        self.process = Process(["taskset", "-c", core, *command], {"OMP_NUM_THREADS": "1"}, folder / f"{name}.log")

    def read(self):
        return self.process.read(time.monotonic() + SILENCE_SECONDS)

    def seconds(self, job):
        self.process.write(job)
        answer = self.read()
        try:
            return float(answer)
        except ValueError:
            raise Failed(f"answered {answer}, which is no time") from None


def take_turns(contestants, amounts, rounds):
    """Rates by (job, contestant) and round. Each round begins with another contestant; the first does not count."""
    rates = {}
    for number in range(rounds + 1):
        for job in JOBS:
            order = contestants[number % len(contestants) :] + contestants[: number % len(contestants)]
            for contestant in order:
                if contestant.name == PILLOW and job not in ("full", "scaled"):
                    continue
                time.sleep(PAUSE_SECONDS)
                rate = amounts[job] / contestant.seconds(job)
                if number > 0:
                    rates.setdefault((job, contestant.name), []).append(rate)
    return rates


def report(rates):
    for job, title in JOBS.items():
        print(f"\n{title}")
        for (of_job, name), of_rounds in rates.items():
            if of_job == job:
                middle, low, high = spread(of_rounds)
                print(f"  {name:<44} {middle:8.2f}   ({low:.2f} to {high:.2f})")
    bars = {(job, name, other): bar for job, name, other, bar in BARS}
    print("\nRatios, tandem's over theirs")
    for job, name, other in RATIOS:
        if (other, name) not in rates:
            continue
        middle, low, high = spread([a / b for a, b in zip(rates[job, TANDEM], rates[other, name])])
        bar = bars.get((job, name, other))
        verdict = "" if bar is None else f"   at least {bar:.2f}   {'met' if middle >= bar else 'NOT met'}"
        print(f"  {f'{job} / {name}, {other}':<44} {middle:8.2f}   ({low:.2f} to {high:.2f}){verdict}")


def parse_flags():
    parser = argparse.ArgumentParser(
        prog="images",
        description="Measures tandem beside tf.data and Pillow, on one core: JPEG decoding with resize, TFRecord reading.",
        allow_abbrev=False,
    )
    parser.add_argument("--pictures", required=True, help="a folder with .jpg files in it or below")
    parser.add_argument("--size", type=positive, default=224, help="height and width to resize to (%(default)s)")
    parser.add_argument("--rounds", type=positive, default=11, help="turns of each; more are more exact (%(default)s)")
    parser.add_argument("--megabytes", type=positive, default=256, help="of records (%(default)s)")
    parser.add_argument("--check", action="store_true", help=argparse.SUPPRESS)  # the flags, and do nothing
    parser.error = lambda message: parser.exit(2, f"images: {message}\n")
    flags = parser.parse_args()
    if not any(pathlib.Path(flags.pictures).rglob("*.jpg")):
        parser.error(f'--pictures: there is no .jpg file in "{flags.pictures}"')
    return flags


def main():
    flags = parse_flags()
    if flags.check:
        return 0
    # As Ctrl-C does: out through the `finally` that ends the workers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    print(cpu_and_load(os.getloadavg()[0]))
    core = max(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="tandem_images_") as name:
        folder = pathlib.Path(name)
        common = ["--pictures", flags.pictures, "--records", folder, "--size", flags.size]
        subprocess.run(
            [str(part) for part in [PROGRAM, *common, "--write_records", "--megabytes", flags.megabytes]], check=True
        )
        pictures = len(list(pathlib.Path(flags.pictures).rglob("*.jpg")))
        amounts = {"scaled": pictures, "full": pictures}
        for kind in ("large", "small"):
            amounts[kind] = (folder / f"{kind}.tfrecord").stat().st_size / 1e9
        commands = {
            TANDEM: [PROGRAM, *common, "--worker"],
            TENSORFLOW: [sys.executable, BENCH / "images_worker.py", "tensorflow", *common],
        }
        pillow = python_with_pillow()
        if pillow:
            commands[PILLOW] = [pillow, BENCH / "images_worker.py", "pillow", *common]
        else:
            print("  no Pillow here: install Debian's python3-pil to see it too")
        contestants = []
        try:
            for contestant, command in commands.items():
                contestants.append(Contestant(contestant, command, core, folder))
                print(f"  {contestant:<44} {contestants[-1].read()}", flush=True)
            rates = take_turns(contestants, amounts, flags.rounds)
        except Failed as failure:
            print(f"images: {failure}", file=sys.stderr)
            return 1
        finally:
            for contestant in contestants:
                contestant.process.end(patience=10)
    print(f"\n{pictures} pictures, resized to {flags.size}x{flags.size}; {flags.megabytes} MB of records; "
          f"middle half of {flags.rounds} rounds")
    report(rates)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
