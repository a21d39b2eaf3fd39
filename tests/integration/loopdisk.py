# SPDX-License-Identifier: Apache-2.0
"""A small disk that misbehaves when it is told to: ext4 on a loop device
over a file that has no name.

It fills, as any disk does. It is remounted read-only. Its writes fail with EIO while the file below
is immutable, its reads while that is cut off: the errors come from the block layer as those of a
dying device do, and pass when they are to. (dm-flakey and dm-error would do the same, where the
kernel has a device mapper.)

Who takes it away is a process that reads a pipe of ours: it does so also when we are killed.
"""
import array
import errno
import fcntl
import mmap
import os
import shutil
import subprocess
import tempfile

import pytest

FS_IOC_GETFLAGS, FS_IOC_SETFLAGS, FS_IMMUTABLE_FL = 0x80086601, 0x40086602, 0x10
CLEANER = r"""
trap '' INT TERM HUP
cat > /dev/null
for i in 1 2 3 4 5 6 7 8 9 10; do
  umount "$1" 2>/dev/null || umount -l "$1" 2>/dev/null || break
done
losetup -d "$2" 2>/dev/null
rm -rf --one-file-system "$1"
"""


def run(*command):
    """The output of the command; its failure skips the test with its error message."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout.strip()


class LoopDisk:
    """path: where it is mounted."""

    def __init__(self, megabytes=64):
        if os.geteuid() != 0:
            pytest.skip("loop devices and mounts need root")
        for tool in ("losetup", "mkfs.ext4", "mount"):
            if not shutil.which(tool):
                pytest.skip(f"there is no {tool} here")
        self.device = self.cleaner = None
        base = os.environ.get("SHMSTORE_TEST_DISK", "/var/tmp")
        handle, image = tempfile.mkstemp(prefix="shmstore-test-disk-", dir=base)
        self.image = handle
        self.path = tempfile.mkdtemp(prefix="shmstore-test-disk-", dir=base)
        try:
            os.truncate(image, megabytes << 20)
            run("mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", image)
            self.device = run("losetup", "--find", "--show", image)
        finally:
            os.unlink(image)
            if not self.device:
                os.close(handle)
                os.rmdir(self.path)
        self.cleaner = subprocess.Popen(["sh", "-c", CLEANER, "cleaner", self.path, self.device],
                                        stdin=subprocess.PIPE, start_new_session=True)
        self.mount()

    def mount(self):
        run("mount", "-o", "noatime,errors=continue", self.device, self.path)

    def unmount(self):
        """As if it had never been mounted: who has something open there keeps it."""
        subprocess.run(["umount", "-l", self.path], check=True)

    def read_only(self, on):
        subprocess.run(["mount", "-o", f"remount,{'ro' if on else 'rw'}", self.path], check=True)

    def fail_writes(self, on):
        flags = array.array("L", [0])
        try:
            fcntl.ioctl(self.image, FS_IOC_GETFLAGS, flags)
            flags[0] = flags[0] | FS_IMMUTABLE_FL if on else flags[0] & ~FS_IMMUTABLE_FL
            fcntl.ioctl(self.image, FS_IOC_SETFLAGS, flags)
        except OSError as error:
            pytest.skip(f"the file below the loop device cannot be made immutable: {error}")
        if on and self.write_error() != errno.EIO:
            self.fail_writes(False)
            pytest.skip("this kernel's loop device writes to an immutable file all the same")

    def write_error(self):
        """The error of a direct write: 0 or an errno."""
        path = os.path.join(self.path, "probe")
        page = mmap.mmap(-1, 4096)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
        try:
            os.write(handle, page)
        except OSError as error:
            return error.errno
        finally:
            os.close(handle)
            os.unlink(path)
        return 0

    def fail_reads(self, on):
        """Of all that is not in the first MiB. Nothing is to be written meanwhile."""
        if on:
            os.sync()
            self.size = os.fstat(self.image).st_size
            self.saved = tempfile.TemporaryFile(dir="/dev/shm")
            self.copy(self.image, self.saved.fileno())
            os.ftruncate(self.image, 1 << 20)
            subprocess.run(["blockdev", "--flushbufs", self.device], check=True)
        else:
            os.ftruncate(self.image, self.size)
            self.copy(self.saved.fileno(), self.image)
            self.saved.close()

    @staticmethod
    def copy(source, target):
        at = 0
        while data := os.pread(source, 1 << 20, at):
            at += os.pwrite(target, data, at)

    def used(self):
        fs = os.statvfs(self.path)
        return (fs.f_blocks - fs.f_bfree) * fs.f_frsize

    def files(self):
        """Tier files, of whomever."""
        found = []
        for below, _, names in os.walk(self.path):
            found += [os.path.join(below, name) for name in names if name != "partition"]
        return sorted(found)

    def remove(self):
        if self.cleaner:
            self.fail_writes(False)
            self.cleaner.stdin.close()
            self.cleaner.wait()
            os.close(self.image)
