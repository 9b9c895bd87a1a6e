"""What the processes that bench/compare measures have in common.

A worker makes its model for each size of batch, steps each a few times to warm up, and writes a line that
says what it is. Then it answers each line "ROWS STEPS" on its standard input, ROWS images for each of two
replicas, with the seconds that the steps took after one that does not count, and ends when its standard input
does. step_worker() in bench/step_speed.cc is the same in C++. In between it sleeps in a read: nobody who
measures shares a core with it.
"""

import os
import sys
import time

SIZES = (128, 16)  # images per replica
WARM_UP_STEPS = 3
SILENCE_SECONDS = 600  # after which whoever does not answer is given up

# As in bench/resnet20.h.
LEARNING_RATE = 0.001
MOMENTUM = 0.9
WEIGHT_DECAY = 2e-4


def check_parameters(count):
    """ResNet-20 as src/models/resnet.cc has it; so that nobody trains another network unnoticed."""
    expected = 272474
    if count != expected:
        raise SystemExit(f"the network has {count} trainable parameters, not {expected}")


def wait_for_the_end():
    """For a task that serves others and is not asked itself. Ends the process, servers and all."""
    sys.stdin.read()
    os._exit(0)


def serve(name, runs, begin=lambda: None):
    """runs: rows of a replica -> function of the number of steps. begin: called before the clock starts."""
    # Libraries print to standard output as they please; the answers get a descriptor of their own.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for run in runs.values():
        run(WARM_UP_STEPS)
    print(name, file=answers)
    for line in sys.stdin:
        rows, steps = map(int, line.split())
        runs[rows](1)  # since the last turn others have had the caches
        begin()
        start = time.perf_counter()
        runs[rows](steps)
        print(time.perf_counter() - start, file=answers)
