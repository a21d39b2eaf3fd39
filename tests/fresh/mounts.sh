# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Read by tests/fresh/enter and tests/boot/enter.

# Mounts all that a machine has, in the root that is the working directory. In a mount
# and a pid namespace of its own.
mount_machine() {
  local device i=0 stream
  mount -t proc proc proc
  # The machine's own sysctl.d, and tests/run in it (tests/sysctls.sh), are not to change
  # the host, whose kernel this is.
  mount --bind proc/sys proc/sys
  mount -o remount,bind,ro proc/sys
  mount -t sysfs -o ro sysfs sys
  mount -t tmpfs -o mode=0755 dev dev
  for device in null zero full random urandom tty; do
    touch "dev/$device"
    mount --bind "/dev/$device" "dev/$device"
  done
  ln -s /proc/self/fd dev/fd
  for stream in in out err; do ln -s "/proc/self/fd/$((i++))" "dev/std$stream"; done
  mkdir dev/shm dev/pts
  mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs dev/shm
  mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts dev/pts
  ln -s pts/ptmx dev/ptmx
  mount -t tmpfs -o mode=0755,nosuid,nodev tmpfs run
}
