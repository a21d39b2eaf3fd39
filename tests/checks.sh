# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Read by tests that are scripts. $log: a file for the output of the command that runs.
passed=0 failed=0 skipped=0

check() { # what, command…
  if "${@:2}" >"$log" 2>&1; then
    echo "ok - $1"
    passed=$((passed + 1))
  else
    echo "FAILED - $1"
    tail -n 30 "$log" | sed 's/^/    /'
    failed=$((failed + 1))
  fi
}

# Adds what a program in a root of its own has said; without its last line it has failed.
add_log() { # log, "end of" what, words before each line's text
  local p f s
  sed -E "s/^(ok|FAILED|skipped) - /&${3-}/" "$1"
  read -r p f s < <(awk '/^ok - / { p++ } /^FAILED - / { f++ } /^skipped - / { s++ }
    END { print p + 0, f + 0, s + 0 }' "$1")
  if ! grep -qx "end of $2" "$1"; then
    echo "FAILED - ${3-}$2 did not come to its end"
    f=$((f + 1))
  fi
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}

counts() {
  echo "$passed passed, $failed failed$( ((skipped == 0)) || echo ", $skipped skipped")"
  ((failed == 0))
  exit
}

skip() { # why, before the first check
  echo "skipped: $1"
  echo "0 passed, 0 failed, 1 skipped"
  exit 0
}
