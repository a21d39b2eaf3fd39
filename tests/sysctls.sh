# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Read by tests/run and tests/boot/run: what a host protects in directories that all may write to.
#
# With these values, which Debian sets, the kernel answers otherwise than with 0: EACCES for
# another's symlink, hard link, file or FIFO there. No namespace has its own, so they are this
# machine's while tests run. The old ones are put back when the last of these runs has ended,
# however it ended. A run that may not set them goes on with those that are there.

protections=(protected_hardlinks=1 protected_symlinks=1 protected_regular=2 protected_fifos=1)

# Waits in the background until the process has ended, with a shared lock by descriptor 9: each run
# has one. The last puts back.
keep_protections() { # files' name, process
  local setting
  tail --pid="$2" -s 0.2 -f /dev/null
  exec 8>"$1.lock" && flock 8 && flock --unlock 9 && flock --nonblock 9 || return
  while read -r setting; do echo "${setting#*=}" >"/proc/sys/fs/${setting%=*}"; done <"$1.old"
  rm "$1.old"
}

protect_as_debian() {
  local keep=/run/shmstore-tests process=$BASHPID setting
  ((EUID == 0)) && exec 8>"$keep.lock" 9>"$keep.users" && flock 8 && flock --shared 9 || return 0
  if [[ ! -e $keep.old ]]; then
    for setting in "${protections[@]%=*}"; do echo "$setting=$(cat "/proc/sys/fs/$setting")"; \
      done >"$keep.new"
    mv "$keep.new" "$keep.old"
  fi
  for setting in "${protections[@]}"; do
    [[ ! -w /proc/sys/fs/${setting%=*} ]] || echo "${setting#*=}" >"/proc/sys/fs/${setting%=*}"
  done
  export -f keep_protections
  # In a session of its own: what ends the tests does not end it.
  (setsid bash -c 'keep_protections "$@"' keep "$keep" "$process" </dev/null >/dev/null 2>&1 8>&- &)
  export -nf keep_protections
  exec 8>&- 9>&-
}
