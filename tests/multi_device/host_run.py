"""Runs `bert-lamb` as one host of a job, noting the rows it feeds, with a signal after a step.

    python host_run.py SEEN SIGNAL STEP pretrain --config=...

SEEN gets one JSON object a batch: the numbers of the rows and a digest of each. SIGNAL is sent to
this process after STEP steps; "none" sends nothing. Job, hosts, and signals are real.
"""

import hashlib
import json
import logging
import os
import signal
import sys

# The program sets up its log before it imports what brings a log of its own; so here.
logging.basicConfig(level=logging.INFO)

from bert_lamb.cli import main  # noqa: E402
from bert_lamb.training import trainer  # noqa: E402
from bert_lamb.training.recorder import Recorder  # noqa: E402

seen = open(sys.argv[1], "a", encoding="utf-8", buffering=1)  # noqa: SIM115
put_batch, step_done = trainer.put_batch, Recorder.step_done


def put_and_note(batch, mesh):
    digests = [
        hashlib.sha256(b"".join(batch[name][i].tobytes() for name in sorted(batch))).hexdigest()
        for i in range(len(batch["row"]))
    ]
    seen.write(json.dumps({"rows": batch["row"].tolist(), "digests": digests}) + "\n")
    return put_batch(batch, mesh)


def step_done_then_signal(self, step, report, *, window_ends):
    step_done(self, step, report, window_ends=window_ends)
    if step == int(sys.argv[3]):
        os.kill(os.getpid(), signal.Signals[sys.argv[2]])


trainer.put_batch = put_and_note
if sys.argv[2] != "none":
    Recorder.step_done = step_done_then_signal
if __name__ == "__main__":
    sys.exit(main(sys.argv[4:]))
