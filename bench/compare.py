"""Measures tandem beside PyTorch's DDP and TensorFlow's strategies; bench/compare prepares and runs it.

All train ResNet-20 on a fixed batch in memory, two replicas with one thread each. By default tandem's and
TensorFlow's are in one process (TensorFlow: two inter-op threads, one intra-op); with --multi_worker each replica is
a worker, in a process of its own; with --parameter_server the variables are in a third process, and nobody waits for
the other. Each contestant is a worker (compare_worker.py tells what they speak) that sleeps
until it is its turn. They take turns in short rounds, so the ratios hold on a machine that is not quite idle, where images/s do
not. A rate is the median over the rounds; a ratio is the median of the ratios within each round, with the
bounds of their middle half beside it.

A bar that is not met is a measurement, not a failure. The exit code is 1 if a contestant failed, 2 for a
wrong flag.
"""

import argparse
import datetime
import json
import os
import pathlib
import select
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from compare_worker import SILENCE_SECONDS, SIZES

BENCH = pathlib.Path(__file__).resolve().parent
PROGRAM = BENCH.parent / "build/release/bin/bench_one_machine"
REPLICAS = 2
STEPS = {128: 2, 16: 12}  # of a turn, by images per replica
PAUSE_SECONDS = 0.05  # before a turn: thread pools spin for a moment after their work
LAST_WORDS_SECONDS = 10  # for a worker to end by itself

TANDEM, LOCKSTEP, DDP, TENSORFLOW = "tandem", "lockstep", "ddp", "tensorflow"
WORKERS, APART, TENSORFLOW_WORKERS = "workers", "apart", "tensorflow_workers"
PS, TENSORFLOW_PS = "ps", "tensorflow_ps"
TITLES = {
    TANDEM: "tandem, MirroredStrategy",
    LOCKSTEP: "tandem, replicas that exchange nothing",
    WORKERS: "tandem, MultiWorkerMirroredStrategy",
    APART: "tandem, two processes that do not talk",
    DDP: "PyTorch, DDP over Gloo",
    TENSORFLOW: "TensorFlow, MirroredStrategy",
    TENSORFLOW_WORKERS: "TensorFlow, MultiWorkerMirroredStrategy",
    PS: "tandem, ParameterServerStrategy",
    TENSORFLOW_PS: "TensorFlow, ParameterServerStrategy",
}
IN_ONE_PROCESS = (TANDEM, LOCKSTEP, DDP, TENSORFLOW)
WORKER_PROCESSES = (WORKERS, APART, DDP, TENSORFLOW_WORKERS)
PARAMETER_SERVERS = (PS, APART, TENSORFLOW_PS)
RATIOS = (
    (TANDEM, DDP),
    (TANDEM, TENSORFLOW),
    (TANDEM, LOCKSTEP),
    (DDP, LOCKSTEP),
    (WORKERS, DDP),
    (WORKERS, TENSORFLOW_WORKERS),
    (WORKERS, APART),
    (DDP, APART),
    (PS, TENSORFLOW_PS),
    (PS, APART),
)
BARS = {  # at least, by images per replica
    128: {
        (TANDEM, DDP): 0.97,
        (TANDEM, TENSORFLOW): 2,
        (WORKERS, DDP): 0.95,
        (WORKERS, TENSORFLOW_WORKERS): 3,
        (WORKERS, APART): 0.95,
        (PS, TENSORFLOW_PS): 3,
    },
    16: {
        (TANDEM, DDP): 1.1,
        (TANDEM, TENSORFLOW): 2,
        (WORKERS, DDP): 1.1,
        (WORKERS, TENSORFLOW_WORKERS): 3,
        (WORKERS, APART): 0.88,
        (PS, TENSORFLOW_PS): 3,
    },
}


class Failed(Exception):
    """A worker that ended, was silent too long, or answered nonsense."""


class Process:
    """A worker process: lines to it and from it."""

    def __init__(self, command, environment, log):
        self.log = log
        self.unread = b""
        with open(log, "wb") as errors:
            self.process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **environment},
                start_new_session=True,  # Ctrl-C reaches the driver alone, which then ends the workers
            )

    def write(self, line):
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Failed(self.obituary()) from None

    def read(self, deadline):
        """The next line, without its end."""
        output = self.process.stdout.fileno()
        while b"\n" not in self.unread:
            left = max(0, deadline - time.monotonic())
            if not select.select([output], [], [], left)[0]:
                raise Failed(f"process {self.process.pid} did not answer within {SILENCE_SECONDS} s")
            part = os.read(output, 4096)
            if not part:
                raise Failed(self.obituary())
            self.unread += part
        line, self.unread = self.unread.split(b"\n", 1)
        return line.decode(errors="replace")

    def obituary(self):
        try:
            code = self.process.wait(LAST_WORDS_SECONDS)
            end = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        except subprocess.TimeoutExpired:
            end = "it closed its output"
        lines = pathlib.Path(self.log).read_text(errors="replace").strip().splitlines()
        return "\n    ".join([f"process {self.process.pid} ended: {end}", *lines[-8:]])

    def end(self, patience):
        """Closes its input, which tells a worker to end; kills it if it does not."""
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


class Contestant:
    """Worker processes that are told the same and measured together, and those that only serve them."""

    def __init__(self, name, folder):
        self.name = name
        self.version = ""
        self.processes = []
        for rank, (command, environment) in enumerate(commands(name, folder)):
            self.processes.append(Process(command, environment, folder / f"{name}_{rank}.log"))
        # Those that are asked come first.
        self.asked = self.processes[: {PS: REPLICAS, TENSORFLOW_PS: 1}.get(name)]

    def read(self):
        deadline = time.monotonic() + SILENCE_SECONDS
        return [process.read(deadline) for process in self.asked]

    def wait_until_ready(self):
        self.version = self.read()[0]

    def images_per_second(self, rows):
        """Of one turn; the slower process counts."""
        steps = STEPS[rows]
        for process in self.asked:
            process.write(f"{rows} {steps}")
        answers = self.read()
        try:
            return REPLICAS * rows * steps / max(map(float, answers))
        except (ValueError, ZeroDivisionError):
            raise Failed(f"answered {answers}, which is no time") from None

    def end(self, patience=LAST_WORDS_SECONDS):
        for process in self.processes:
            try:
                process.process.stdin.close()  # of all first: ranks end together
            except BrokenPipeError:
                pass
        for process in self.processes:
            process.end(patience)


def commands(name, folder):
    """What to run, and what to add to its environment, for each process of a contestant."""
    if name == TANDEM:
        return [([PROGRAM, "--step_worker", "mirrored"], {})]
    if name == LOCKSTEP:
        return [([PROGRAM, "--step_worker", "no_exchange"], {})]
    if name == APART:
        return [([PROGRAM, "--step_worker", "alone"], {})] * REPLICAS
    if name == WORKERS:
        return [([PROGRAM, "--step_worker", "multi_worker"], config) for config in task_configs(worker=REPLICAS)]
    if name == PS:
        configs = task_configs(worker=REPLICAS, ps=1)
        return [([PROGRAM, "--step_worker", "parameter_server"], config) for config in configs]
    if name == TENSORFLOW:
        return [([sys.executable, BENCH / "compare_tensorflow.py"], {})]
    if name == TENSORFLOW_WORKERS:
        configs = task_configs(worker=REPLICAS)
        return [([sys.executable, BENCH / "compare_tensorflow.py", "--worker"], config) for config in configs]
    if name == TENSORFLOW_PS:
        configs = task_configs(chief=1, worker=REPLICAS, ps=1)
        return [([sys.executable, BENCH / "compare_tensorflow.py", "--parameter_server"], config) for config in configs]
    on_loopback = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    return [
        ([sys.executable, BENCH / "compare_ddp.py", rank, folder / "ddp_store"], on_loopback)
        for rank in range(REPLICAS)
    ]


def task_configs(**jobs):
    """TF_CONFIG for each task of a cluster with so many tasks of each job, on ports that are free now."""
    tasks = [(job, index) for job, count in jobs.items() for index in range(count)]
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in tasks]
    cluster = {job: [] for job in jobs}
    for (job, _), each in zip(tasks, sockets):
        cluster[job].append(f"127.0.0.1:{each.getsockname()[1]}")
        each.close()
    return [
        {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})} for job, index in tasks
    ]


class Field:
    """The contestants that are still in."""

    def __init__(self, names, folder):
        self.contestants = []
        self.failed = False
        try:
            for name in names:
                self.contestants.append(Contestant(name, folder))
        except BaseException:
            self.end()
            raise

    def ask(self, contestant, question):
        """What question(contestant) returns; None, and out with the contestant, if it fails."""
        try:
            return question(contestant)
        except Failed as failure:
            print(f"compare: {TITLES[contestant.name]}: {failure}", file=sys.stderr)
            self.failed = True
            self.contestants = [other for other in self.contestants if other is not contestant]
            contestant.end(patience=0)
            return None

    def end(self):
        for contestant in self.contestants:
            contestant.end()


def take_turns(field, rounds):
    """Images/s by images per replica, contestant and round.

    Each round begins with another contestant; once all have begun one, they go round the other way, so that
    none always follows the same one. A first round, to warm up, does not count.
    """
    rates = {rows: {contestant.name: [] for contestant in field.contestants} for rows in SIZES}
    for number in range(rounds + 1):
        for rows in SIZES:
            count = len(field.contestants)
            order = [field.contestants[(number + turn) % count] for turn in range(count)]
            if count and number // count % 2 == 1:
                order.reverse()
            for contestant in order:
                time.sleep(PAUSE_SECONDS)
                rate = field.ask(contestant, lambda c: c.images_per_second(rows))
                if rate is not None and number > 0:
                    rates[rows][contestant.name].append(rate)
        show_progress(number, rounds)
    still_in = {contestant.name for contestant in field.contestants}
    return {rows: {name: r for name, r in by_name.items() if name in still_in} for rows, by_name in rates.items()}


def show_progress(number, rounds):
    if sys.stderr.isatty():
        print(f"\rround {number} of {rounds}", end="\n" if number == rounds else "", file=sys.stderr, flush=True)


def spread(values):
    """The median, and the bounds of the middle half."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return middle, low, high


def report(rates, rounds):
    bars = []
    for rows in SIZES:
        print(f"\nResNet-20, {rows} images per replica: images/s, ratios (middle half of {rounds} rounds)")
        for name, of_rounds in rates[rows].items():
            print(f"  {TITLES[name]:<44} {statistics.median(of_rounds):8.1f}")
        for over, under in RATIOS:
            if over not in rates[rows] or under not in rates[rows]:
                continue
            quotients = [a / b for a, b in zip(rates[rows][over], rates[rows][under])]
            middle, low, high = spread(quotients)
            print(f"  {over + ' / ' + under:<44} {middle:8.3f}   ({low:.3f} to {high:.3f})")
            bar = BARS[rows].get((over, under))
            if bar is not None:
                bars.append((f"{rows} per replica: {over} / {under}", middle, bar))
    if bars:
        print("\nBars")
    for what, value, bar in bars:
        print(f"  {what:<44} {value:8.3f}   at least {bar:.2f}   {'met' if value >= bar else 'NOT met'}")


def cpu_and_load(load):
    cpu = "unknown CPU"
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.split(": ", 1)[1]
            break
    usable = len(os.sched_getaffinity(0))
    return f"{datetime.date.today()}, {cpu}, {usable} usable of {os.cpu_count()} cores, load average {load:.2f}"


def print_machine(contestants, load):
    print(cpu_and_load(load))
    for contestant in contestants:
        print(f"  {TITLES[contestant.name]:<44} {contestant.version}")
    sys.stdout.flush()


def positive(text):
    value = int(text)
    if value < 1:
        raise ValueError
    return value


positive.__name__ = "positive number"  # what argparse calls it


def parse_flags():
    parser = argparse.ArgumentParser(
        prog="compare",
        description="Measures tandem beside PyTorch's DDP and TensorFlow: ResNet-20, two replicas.",
        epilog="bench/compare --setup installs the two, once.",
        allow_abbrev=False,
    )
    parser.add_argument("--rounds", type=positive, default=45, help="turns of each; more are more exact (%(default)s)")
    parser.add_argument("--only", choices=[DDP, TENSORFLOW], help="compare with this one alone")
    tasks = parser.add_mutually_exclusive_group()
    tasks.add_argument("--multi_worker", action="store_true", help="a process for each replica")
    tasks.add_argument("--parameter_server", action="store_true", help="two workers and a ps, each a process")
    parser.add_argument("--check", action="store_true", help=argparse.SUPPRESS)  # the flags, and do nothing
    # One line, as tandem's programs have it.
    parser.error = lambda message: parser.exit(2, f"compare: {message}\n")
    return parser.parse_args()


def main():
    flags = parse_flags()
    if flags.check:
        return 0
    # As Ctrl-C does: out through the `finally` that ends the workers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    load = os.getloadavg()[0]  # before they all warm up
    names = IN_ONE_PROCESS
    if flags.multi_worker:
        names = WORKER_PROCESSES
    if flags.parameter_server:
        names = PARAMETER_SERVERS
    without = {DDP: (TENSORFLOW, TENSORFLOW_WORKERS, TENSORFLOW_PS), TENSORFLOW: (DDP,), None: ()}[flags.only]
    names = [name for name in names if name not in without]
    with tempfile.TemporaryDirectory(prefix="tandem_compare_") as folder:
        field = Field(names, pathlib.Path(folder))
        try:
            for contestant in list(field.contestants):
                field.ask(contestant, Contestant.wait_until_ready)
            print_machine(field.contestants, load)
            rates = take_turns(field, flags.rounds)
        finally:
            field.end()
    report(rates, flags.rounds)
    return 1 if field.failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
