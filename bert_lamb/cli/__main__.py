"""`python -m bert_lamb.cli` is `bert-lamb`."""

import sys

from bert_lamb.cli.command import main

if __name__ == "__main__":
    sys.exit(main())
