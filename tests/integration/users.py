# SPDX-License-Identifier: Apache-2.0
"""Three users on one partition: ALICE and BOB, who work there, and EVE, who means harm."""
import contextlib
import os

ALICE, BOB, EVE = 60001, 60002, 60003


@contextlib.contextmanager
def being(uid, groups=()):
    """This process as that user of these further groups: its files, and the
    credentials that a socket shows."""
    before = os.getgroups()
    os.setgroups(groups)
    os.setegid(uid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(before)
