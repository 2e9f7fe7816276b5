"""`make bench`; see bench/command.py."""

import sys

if __name__ == "__main__":  # worker processes of a study import this module, too, for nothing
    from bench.command import main

    sys.exit(main())
