# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Read by tests/run: how many tests ran, by what a log says. Each function
# prints "passed failed skipped".

# ctest -V: criterion programs count their tests, other programs count as one each.
count_ctest() {
  awk '
    match($0, /^[0-9]+: \[====\] Synthesis: Tested: /) {
      id = $0 + 0; gsub(/[^0-9 ]/, " "); n = split($0, f, " "); inner[id] = 1
      ip[id] += f[n - 2]; ifail[id] += f[n - 1] # those that crashed are among those that failed
    }
    match($0, /^[0-9]+: \[SKIP\] /) { iskip[$0 + 0]++ }
    match($0, /^ *[0-9]+\/[0-9]+ Test +#[0-9]+: /) {
      id = $0; sub(/^[^#]*#/, "", id); id += 0
      if ($0 ~ /\*\*\*Skipped/) skipped++
      else if (id in inner) {
        passed += ip[id]; failed += ifail[id]; skipped += iskip[id]
        if ($0 !~ / Passed /  && !ifail[id]) failed++
      } else if ($0 ~ / Passed /) passed++
      else failed++
    }
    END { print passed + 0, failed + 0, skipped + 0 }' "$1"
}

count_pytest() {
  awk '
    / in [0-9.]+s/ && /(passed|failed|errors?|skipped|no tests ran)/ {
      gsub(/[=,]/, " "); n = split($0, f, " ")
      for (i = 2; i <= n; i++) {
        if (f[i] == "passed" || f[i] == "xfailed") passed += f[i - 1]
        else if (f[i] == "failed" || f[i] ~ /^errors?$/ || f[i] == "xpassed") failed += f[i - 1]
        else if (f[i] == "skipped") skipped += f[i - 1]
      }
    }
    END { print passed + 0, failed + 0, skipped + 0 }' "$1"
}

# "N passed, N failed", the last such line.
count_line() {
  grep -E '^[0-9]+ passed, [0-9]+ failed' "$1" | tail -1 |
    awk '{ gsub(/,/, ""); s = 0; for (i = 2; i <= NF; i++) if ($i == "skipped") s = $(i - 1);
      print $1, $3, s; n = 1 } END { if (!n) print 0, 0, 0 }'
}

# "ok - …" and "FAILED - …".
count_ok() {
  awk '/^ok - / { p++ } /^FAILED - / { f++ } END { print p + 0, f + 0, 0 }' "$1"
}

# run_upstream: "ro: 85 passed, 2 skipped in 40 s"; what fails at first and
# passes alone is not a failure.
count_upstream() {
  awk '
    /^(ro|cow): .* in [0-9]+ s$/ {
      gsub(/,/, ""); n = split($0, f, " ")
      for (i = 2; i <= n; i++) {
        if (f[i] == "passed" || f[i] == "xfailed") passed += f[i - 1]
        else if (f[i] == "skipped") skipped += f[i - 1]
      }
    }
    /: passes on stock, .* on ours$/ { failed++ }
    END { print passed + 0, failed + 0, skipped + 0 }' "$1"
}
