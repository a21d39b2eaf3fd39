# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Read by tests/arm64/run and tests/wheel/released.

extract() { # release, architecture, packages, directory: files of packages, without a system
  [[ ! -e $4/made ]] || return 0
  local sources own
  own=$(. /etc/os-release && echo "${VERSION_CODENAME-}")
  mapfile -t sources < <(grep -lE 'debian' /etc/apt/sources.list \
    /etc/apt/sources.list.d/*.{list,sources} 2>/dev/null | xargs -r grep -lw "$own")
  rm -rf "$4" && mkdir -p "$4.sources" && cp "${sources[@]}" "$4.sources" &&
    sed -E -i "s/\b$own\b/$1/g" "$4.sources"/* || return 1
  mmdebstrap --variant=extract --architectures="$2" --aptopt='Acquire::Check-Valid-Until "false"' \
    --include="$3" "$1" "$4" "$4.sources"/* && touch "$4/made"
}

# Prints a qemu of 9.2 or later: this machine's, or Debian 13's, which is one file
# and comes into that directory.
emulator() { # directory
  local qemu
  for qemu in "$(command -v qemu-aarch64)" "$1/usr/bin/qemu-aarch64"; do
    [[ $qemu != "$1"/* ]] || extract trixie "$(dpkg --print-architecture)" qemu-user "$1" >&2 ||
      return 1
    [[ -n $qemu ]] && printf '%s\n9.2\n' \
      "$("$qemu" --version | sed -n 's/.* version \([0-9.]*\).*/\1/p')" | sort -VC -r &&
      echo "$qemu" && return
  done
  return 1
}
