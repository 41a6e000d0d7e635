"""Which system calls a program in the sandbox is refused, as a filter for bubblewrap.

Limits of the kernel count processes per user and do not hold for root at all, so a fork bomb is
stopped here: a program is one process with one thread, and its memory limit is then the limit of
everything it runs. Sockets, shared memory and message queues, which no limit counts, and what looks
into other processes or makes namespaces are refused too.
"""

from __future__ import annotations

import errno
import platform
import struct

ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
LOAD, EQUAL, AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06
CALL, ARCHITECTURE = 0, 4
"""Where the kernel tells the number of the call, and whose numbers they are."""
X32 = 0x40000000
"""A second set of numbers for the same calls on x86-64."""

CLONE3 = 435
REFUSED = {
    # fork vfork clone, unshare setns mount, ptrace process_vm_readv process_vm_writev,
    # shmget msgget semget mq_open, socket socketpair, add_key request_key keyctl,
    # bpf perf_event_open userfaultfd io_uring_setup
    "x86_64": (
        *(57, 58, 56, 272, 308, 165, 101, 310, 311, 29, 68, 64, 240),
        *(41, 53, 248, 249, 250, 321, 298, 323, 425),
    ),
    "aarch64": (
        *(220, 97, 268, 40, 117, 270, 271, 194, 186, 190, 180),
        *(198, 199, 217, 218, 219, 280, 241, 282, 425),
    ),
}
NUMBERS_OF = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def seccomp_filter(machine: str | None = None) -> bytes | None:
    """The filter as the kernel reads it; None for a machine whose calls we do not know."""
    machine = machine or platform.machine()
    if machine not in REFUSED:
        return None
    lines = [(LOAD, 0, 0, ARCHITECTURE), (EQUAL, 1, 0, NUMBERS_OF[machine]), (RETURN, 0, 0, KILL)]
    lines += [(LOAD, 0, 0, CALL), (AT_LEAST, 0, 1, X32), (RETURN, 0, 0, KILL)]
    # "Not there" rather than "not allowed": the C library then tries the older call.
    lines += _refuse(CLONE3, errno.ENOSYS)
    for number in REFUSED[machine]:
        lines += _refuse(number, errno.EPERM)
    lines.append((RETURN, 0, 0, ALLOW))
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def _refuse(number: int, error: int) -> list[tuple[int, int, int, int]]:
    return [(EQUAL, 0, 1, number), (RETURN, 0, 0, ERRNO | error)]
