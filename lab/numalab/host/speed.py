"""How slow this host is now, so that a limit on time means the same on every host."""

import os
import time

_WORK, _ORDINARY = 300_000, 0.02  # squares, and their CPU seconds (Python 3.11 at 3 GHz)


def slowness() -> float:
    """Return how many times longer things take here than on an idle host of ordinary speed.

    It is the CPU time that a piece of work takes, times the tasks that ran or waited for each CPU
    over the last minute; at least 1.
    """
    began = time.process_time()
    sum(number * number for number in range(_WORK))
    speed = (time.process_time() - began) / _ORDINARY
    crowd = os.getloadavg()[0] / len(os.sched_getaffinity(0))
    return max(1.0, speed) * max(1.0, crowd)
