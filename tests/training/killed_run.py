"""Runs `bert-lamb` with a signal sent to itself right after a given step.

    python killed_run.py SIGNAL STEP pretrain --config=...

Only the moment is arranged here; the signal and the process are real.
"""

import os
import signal
import sys

from bert_lamb.cli import main
from bert_lamb.training.recorder import Recorder

number, after = signal.Signals[sys.argv[1]], int(sys.argv[2])
step_done = Recorder.step_done


def step_done_then_signal(self, step, report, *, window_ends):
    step_done(self, step, report, window_ends=window_ends)
    if step == after:
        os.kill(os.getpid(), number)


Recorder.step_done = step_done_then_signal
if __name__ == "__main__":
    sys.exit(main(sys.argv[3:]))
