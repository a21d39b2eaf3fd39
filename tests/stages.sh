# shellcheck shell=bash disable=SC2034,SC2154
# SPDX-License-Identifier: Apache-2.0
# Read by tests/run: its stages, which of them run side by side, and for how long.
#
# A stage is a function stage_NAME; its output is its log. It tells how many tests ran by
# add_counts; its exit status is 0 if all is well.

# The gate comes first. Two stages run at a time, and after the gate those that take longest come
# first, so that no long one is left alone at the end. Three at a time are not faster:
# two keep two processors busy.
gate=(format tidy build layers unit)
in_pairs=(asan tsan upstream integration crash dask python stress boot readme fuzz deny)
# On request, and of --long, only. One after the other: a fresh machine has nothing else to do,
# either, and programs of Dask that wait for each other give up on a busy one.
long_only=(fresh mutants model sim coverage wheel packages image recipes site dask_new gcc11
  old_libc arm64)
# may end well without having counted one: where they cannot be made
no_tests=(format tidy build fresh boot wheel packages image site dask_new gcc11 old_libc arm64)

# Seconds after which a stage is ended: far more than it takes on two cores.
limit_of() {
  case $1 in
    crash | stress | upstream | mutants) echo $((long ? 7200 : 2700)) ;;
    *) echo $((long ? 3600 : 2400)) ;;
  esac
}

# ---- what stages are made of ---------------------------------------------------------------------

add_counts() { echo "$@" >>"$counts"; }

release=$root/build/release
sanitized=$root/build/clang

# Once in a run of tests/run: stages that run side by side want it.
build_once() { # its directory's name, commands
  flock "$logs/$1.lock" bash -c '[[ -f $1 ]] || { eval "$2" && touch "$1"; }' build_once \
    "$logs/$1.built" "$2"
}

# tests/fresh builds the same once more, in another root: what the same compiler has made of the
# same files is kept for it. By the compiler's own list of what it read, which costs nothing; files
# of a new clone are new, and nobody writes them while it is built.
export CCACHE_DIR=$root/build/ccache CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1 \
  CCACHE_COMPILERCHECK=content CCACHE_DEPEND=1
export CCACHE_SLOPPINESS=locale,include_file_mtime,include_file_ctime
# The kernel's headers come with libc6-dev, and each fix of the kernel's brings other ones: these
# two need not be of the same week.
export CCACHE_IGNOREHEADERS=/usr/include/linux

# The package is compiled, too: hundreds of processes import it, and write
# no compiled files themselves.
build_release() {
  local kept=
  ! has fresh "${chosen[@]}" ||
    kept="CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache"
  build_once release "$kept \
    cmake --preset release -DSHMSTORE_WERROR=ON && cmake --build '$release' -j $jobs &&
    env -u PYTHONDONTWRITEBYTECODE /usr/bin/python3 -m compileall -q '$release/python'"
}

# By clang, warnings being errors, with address and undefined behaviour
# sanitizers and what the fuzzers want.
build_sanitized() {
  build_once clang "cmake --preset clang && cmake --build '$sanitized' -j $jobs"
}

sanitizer_options() {
  export ASAN_OPTIONS=detect_leaks=1:exitcode=99 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
  export LSAN_OPTIONS=exitcode=99:print_suppressions=0
}

# Randomised addresses of more bits than a sanitizer of this age expects make it
# fail at its start, now and then.
fixed=()
if setarch "$(uname -m)" -R true 2>/dev/null; then fixed=(setarch "$(uname -m)" -R); fi

# Who asks which processes have a file open looks at all that there are: those of the same tests are
# fewer, and enough. The shell that is their first process waits for those that lost their parents.
apart=(unshare --pid --fork --mount-proc --kill-child bash -c '"$@"; exit $?' tests)
"${apart[@]}" true 2>/dev/null || apart=()

# Tests wait for the most part: one more at a time than there are processors.
ctest_in() { # build directory, ctest's options
  local build=$1 part=$logs/$stage.ctest status
  shift
  CRITERION_JOBS=1 "${apart[@]}" "${fixed[@]}" ctest --test-dir "$build" -V --no-tests=error \
    -j $((jobs + 1)) "$@" >"$part" 2>&1
  status=$?
  cat "$part"
  if ((status == 8)) && ctest_alone "$build" "$part"; then
    add_counts "$(count_ctest "$part" | awk '{ print $1 + $2, 0, $3 }')"
    return 0
  fi
  add_counts "$(count_ctest "$part")"
  return $status
}

# As pytest_alone: what failed beside other tests has failed if it fails by itself,
# too, and is named in any case.
ctest_alone() { # build directory, log
  local tests
  mapfile -t tests < <(sed -nE \
    's/^\s*[0-9]+ - (\S+) \((Failed|Timeout|SEGFAULT|Subprocess aborted|Exit code .*)\)$/\1/p' \
    "$2" | sort -u)
  ((${#tests[@]} > 0 && ${#tests[@]} <= 3)) || return 1
  CRITERION_JOBS=1 "${apart[@]}" "${fixed[@]}" ctest --test-dir "$1" -V --rerun-failed >"$2.alone" \
    2>&1
  local status=$?
  cat "$2.alone"
  ((status == 0)) || return 1
  printf 'passed alone - %s\n' "${tests[@]}"
}

# Files are run side by side, the tests of a file one after the other: they share what they set up.
pytest_on() { # build directory, pytest's arguments
  local build=$1 part=$logs/$stage.pytest status python=
  shift
  # Python as it is cannot load an extension that wants a sanitizer.
  [[ $build == "$sanitized" ]] || python=$build/python
  pytest_once "$part" -n $((jobs + 1)) --dist loadfile "$@"
  status=$?
  cat "$part"
  if ((status == 1)) && pytest_alone "$part"; then
    add_counts "$(count_pytest "$part" | awk '{ print $1 + $2, 0, $3 }')"
    return 0
  fi
  add_counts "$(count_pytest "$part")"
  return $status
}

pytest_once() { # log, arguments; build and python are pytest_on's
  local log=$1 temporary status
  shift
  # Killed processes leave temporary files, and an interrupted run this directory, which tests/run
  # then removes. A short path: sockets lie below it.
  temporary=$(mktemp -d "/tmp/t$$.XXX") && chmod 1777 "$temporary" || return 1
  TMPDIR=$temporary SHMSTORE_BUILD=$build PYTHONPATH=$python LD_LIBRARY_PATH=$build/libshmstore \
    "${apart[@]}" "${fixed[@]}" /usr/bin/python3 -m pytest -q -p no:cacheprovider -p no:asyncio \
    --timeout=$((long ? 1800 : 600)) -ra --durations=15 "$@" >"$log" 2>&1
  status=$?
  rm -rf "$temporary"
  return $status
}

# What failed beside other tests runs once more by itself, and has failed if it fails then,
# too. Each is named, here and at the end of all (tests/run), so that nobody overlooks a
# test that cannot bear company.
pytest_alone() { # log
  local tests
  mapfile -t tests < <(sed -nE 's/^(FAILED|ERROR) //; t name; d; : name; s/ - .*//; /::/p' "$1" |
    sort -u)
  ((${#tests[@]} > 0 && ${#tests[@]} <= 12)) || return 1
  pytest_once "$1.alone" -n 0 "${tests[@]}"
  local status=$?
  cat "$1.alone"
  ((status == 0)) || return 1
  printf 'passed alone - %s\n' "${tests[@]}"
}

script() { # counting function, script, arguments
  local count=$1 path=$2 part status
  part=$(mktemp "$logs/$stage.script.XXXXXX") || return 1
  shift 2
  if [[ ! -x $path ]]; then
    echo "$path: not there, or not executable"
    return 1
  fi
  "${apart[@]}" "$path" "$@" >"$part" 2>&1
  status=$?
  cat "$part"
  add_counts "$("$count" "$part")"
  return $status
}

# ---- the gate ------------------------------------------------------------------------------------

# Version 14 of these two decides what the code looks like: other ones find other things. A Debian
# without it has nothing to say here.
clang_tool() { # clang-format or clang-tidy; its command
  local command
  for command in "$1-14" "$1"; do
    [[ $("$command" --version 2>/dev/null) != *"version 14."* ]] || { echo "$command" && return; }
  done
  echo "skipped: $1 14 decides, and is not here" >&2
  add_counts 0 0 1
  return 1
}

stage_format() {
  local command
  command=$(clang_tool clang-format) || return 0
  find common libshmstore shmstored tools tests bench examples -name '*.[ch]' | sort |
    xargs "$command" --dry-run -Werror
}

# The analyzer takes ten times as long as all else.
stage_tidy() {
  local checks=-clang-analyzer-* command
  ((!long)) || checks=
  command=$(clang_tool clang-tidy) || return 0
  cmake --preset clang >/dev/null || return 1
  find common libshmstore shmstored tools -name '*.c' | sort |
    xargs -P "$jobs" -n 4 timeout 300 "$command" -p "$sanitized" \
    --quiet ${checks:+"--checks=$checks"}
}

stage_build() {
  build_release
}

# Calls between rooms point down, no room has grown, no line is too long, each sentence has a
# subject, Python's types are right; and mutants, which are played on request only, still find their
# lines.
stage_layers() {
  local status=0 python
  build_release || return 1
  script count_line tests/layers "$release" || status=1
  script count_line tests/lines || status=1
  script count_line tests/columns || status=1
  script count_line tests/sentences || status=1
  if python=$(deploy/environment --types newest); then
    script count_line tests/types "$python" || status=1
  else
    echo "types are skipped"
    add_counts 0 0 1
  fi
  script count_line tests/mutants/in_place || status=1
  return $status
}

# Where asan runs, too, only the tests that it leaves out, but for --long.
stage_unit() {
  local some=(-LE 'readme|stress|slow')
  ((!long)) || some=(-LE 'readme|stress')
  ((long)) || ! has asan "${chosen[@]}" || some+=(-L "$sanitizers_leave")
  build_release || return 1
  ctest_in "$release" -j $((jobs + 2)) "${some[@]}" # beside it runs what takes one processor
}

# ---- under sanitizers ----------------------------------------------------------------------------

# Labels of the tests that CI runs without sanitizers alone: with stores that pack, once more; and
# those that sanitizers cannot run or add nothing to.
sanitizers_leave='again|bare'

# The stress programs run in the stage of their name.
stage_asan() {
  local others=readme
  sanitizer_options
  ((long)) && export SHMSTORE_TEST_ROUNDS=all || others+="|stress|$sanitizers_leave"
  build_sanitized || return 1
  ctest_in "$sanitized" -LE "$others"
}

# The page is the same script in the same browser whatever made the daemon: it is looked at by the
# stage python alone, and so are, but for --long, the files that wait for time to pass, or look at
# the programs as they are installed, and run there, too.
stage_integration() {
  local name left_out=(--ignore-glob 'tests/integration/test_daemon_web*.py')
  sanitizer_options
  build_sanitized || return 1
  if ((!long)); then
    for name in processes daemon_client daemon_gate daemon_preempt_told daemon_actors \
      daemon_actors_pressed deploy openmetrics big_pages admin_top daemon_upcalls \
      profiles; do
      left_out+=(--ignore "tests/integration/test_$name.py")
    done
  fi
  pytest_on "$sanitized" tests/integration "${left_out[@]}"
}

stage_fuzz() {
  build_sanitized || return 1
  SHMSTORE_FUZZ_SECONDS=${SHMSTORE_FUZZ_SECONDS:-$((long ? 60 : 10))} script count_line \
    tests/fuzz/run "$sanitized"
}

stage_tsan() {
  export TSAN_OPTIONS=halt_on_error=0:second_deadlock_stack=1
  cmake --preset tsan && cmake --build build/tsan -j "$jobs" --target races || return 1
  ((long)) && export SHMSTORE_TEST_RACERS=32
  ctest_in build/tsan -L race
}

# ---- the release build ---------------------------------------------------------------------------

# Python's extension; and of tests/integration, all of which runs under sanitizers, what these hide
# or change: the programs as they are installed (system calls, capabilities, the units), time
# (upcalls, terminal, many processes, kills), what the page and promtool see.
stage_python() {
  local name files=() status=0 twice=()
  fetch_promtool
  build_release || return 1
  ((!long)) || twice=(daemon_http admin_shell daemon_stage daemon_links
    daemon_restarts)
  for name in deploy daemon_users daemon_web daemon_web_pressure openmetrics big_pages admin_top \
    processes daemon_client daemon_upcalls daemon_gate daemon_preempt_told daemon_actors \
    daemon_actors_pressed daemon_peers profiles "${twice[@]}"; do
    files+=("tests/integration/test_$name.py")
  done
  pytest_on "$release" tests/python || status=1
  pytest_on "$release" "${files[@]}" || status=1
  return $status
}

# Tests of two kinds of workers or stores run with one of them, where the other takes long.
stage_dask() {
  local some=()
  ((long)) || some=(-k "not (test_born_results and plain) and not (test_ways and no-nanny) \
    and not (test_private and no-tier) and not (test_amm_cycle and stock)")
  export SHMSTORE_DASK_CHAOS_SECONDS=${SHMSTORE_DASK_CHAOS_SECONDS:-$((long ? 60 : 10))}
  build_release || return 1
  pytest_on "$release" tests/dask "${some[@]}"
}

# Which map mode makes no difference to most of upstream's tests, and those of the worker, the
# scheduler and the client take long.
stage_upstream() {
  local options=(--modes ro --files spill,worker_memory)
  ((!long)) || options=(--modes ro,cow)
  build_release || return 1
  script count_upstream tests/dask/run_upstream --build "$release" "${options[@]}"
}

stage_crash() {
  local all=()
  ((!long)) || all=(--all)
  build_release || return 1
  # A victim and its tracer wait for each other at each call, and beside busy tests for their turn.
  [[ $EUID -ne 0 ]] || renice -n -10 -p $BASHPID >/dev/null
  script count_line tests/crash/run "$release" "${all[@]}" crash fault
}

# Under filters that refuse a system call, as sandboxes have them.
stage_deny() {
  local all=()
  ((!long)) || all=(--all)
  build_release || return 1
  script count_line tests/deny/run "${all[@]}" "$release"
}

stage_stress() {
  local all=()
  build_release || return 1
  export SHMSTORE_STRESS_SECONDS=${SHMSTORE_STRESS_SECONDS:-$((long ? 60 : 6))}
  ((long)) || export SHMSTORE_CHAOS_SECONDS=${SHMSTORE_CHAOS_SECONDS:-16}
  ((!long)) || all=(--all)
  script count_line tests/crash/run "$release" "${all[@]}" stress
}

stage_readme() {
  local status=0
  build_release || return 1
  script count_ok tests/readme/run "$release" || status=1
  script count_ok tests/readme/quickstart "$release" || status=1
  return $status
}

# Minimal Debians, where they can be made: there is nothing else to count where not.
stage_fresh() {
  local all=()
  ((!long)) || all=(--long)
  script count_line tests/fresh/run "${all[@]}"
}

# This machine's Debian, with --long each of two, with systemd as the first
# process, where they can be made.
stage_boot() {
  local which
  build_release || return 1
  which=$(. /etc/os-release && echo "${VERSION_CODENAME-}")
  # shellcheck disable=SC2046
  has "$which" $(deploy/packages --releases) || which=
  ((!long)) || which=--long
  script count_line tests/boot/run ${which:+"$which"}
}

# As pip makes and installs it, and as it is released.
stage_wheel() {
  local status=0
  script count_line tests/wheel/run || status=1
  script count_line tests/wheel/released || status=1
  return $status
}

# Debian's, of each release, in machines of their own, where these can be made; and those of RPM.
stage_packages() {
  local status=0
  script count_line tests/packages/run || status=1
  want_packages rpmbuild rpm && { script count_line tests/packages/rpms || status=1; }
  return $status
}

# The container's, and what Kubernetes is told; without buildah the latter only.
stage_image() {
  want_packages buildah buildah
  script count_line tests/image/run
}

# Those of conda, vcpkg and Meson, as far as their own indexes are not wanted.
stage_recipes() {
  script count_line tests/recipes/run
}

# As mkdocs makes it and Chromium shows it.
stage_site() {
  script count_line tests/site/run
}

# Our own Dask tests on Dasks of the package index, each in an environment of its own;
# skipped where it cannot be reached.
stage_dask_new() {
  local version python status=0 part
  build_release || return 1
  for version in "${dask_versions[@]}"; do
    if ! python=$(deploy/environment --tests "$version"); then
      echo "tests on Dask $version are skipped"
      add_counts 0 0 1
      continue
    fi
    part=$logs/$stage-$version.pytest
    SHMSTORE_BUILD=$release PYTHONPATH=$release/python LD_LIBRARY_PATH=$release/libshmstore \
      "$python" -m pytest -q -p no:cacheprovider -p no:asyncio \
      --timeout=1800 -ra --durations=15 -n $((jobs + 1)) --dist loadfile tests/dask >"$part" 2>&1 ||
      status=1
    cat "$part"
    add_counts "$(count_pytest "$part")"
    script count_ok tests/readme/run "$release" "$python" || status=1
  done
  return $status
}

# A slot's protocol in every state, at sizes that take minutes and up to 4 GiB each; the
# unit stage has the small ones.
stage_model() {
  local status=0 words
  build_release || return 1
  for words in "generations=2 leases=2" "words=2 generations=2" "words=2r generations=2" \
    "generations=3" "generations=2 kept=000" "generations=2 kept=111"; do
    # shellcheck disable=SC2086
    if "$release/tests/model/slotmodel" $words; then
      add_counts 1 0 0
    else
      add_counts 0 1 0
      status=1
    fi
  done
  return $status
}

# The whole daemon in virtual time: other seeds than those that the unit stage has.
stage_sim() {
  build_release || return 1
  script count_line "$release/tests/sim/shmstore-daemonsim" --jobs "$jobs" --seeds 1001-21000
}

# Which branches the tests take, room by room. Processes that are killed say nothing of theirs.
stage_coverage() {
  local build=build/coverage tools=build/venvs/coverage status=0
  if ! { /usr/bin/python3 -m venv "$tools" && "$tools/bin/pip" install -q --retries 1 \
    --timeout 20 gcovr==8.3; }; then
    echo "skipped: gcovr is not to be had here"
    add_counts 0 0 1
    return
  fi
  cmake --preset coverage && cmake --build "$build" -j "$jobs" || return 1
  find "$build" -name '*.gcda' -delete
  ctest_in "$build" -LE readme || status=1
  pytest_on "$root/$build" tests/integration || status=1
  pytest_on "$root/$build" tests/python || status=1
  script count_line tests/coverage "$build" "$tools/bin/gcovr" || status=1
  return $status
}

# Compilers for other systems are not among the packages of every test: root has
# them installed, others are told.
want_packages() { # command, packages
  command -v "$1" >/dev/null && return
  [[ $EUID -ne 0 ]] || DEBIAN_FRONTEND=noninteractive apt-get -q -y install \
    --no-install-recommends "${@:2}" </dev/null
  command -v "$1" >/dev/null && return
  echo "skipped: no $1 is to be had here (package ${*:2})"
  add_counts 0 0 1
  return 1
}

# As Ubuntu 22.04 and RHEL 9 would build it: by their compiler.
stage_gcc11() {
  want_packages gcc-11 gcc-11 g++-11 || return 0
  CC=gcc-11 CXX=g++-11 cmake --preset release -B build/gcc11 -DSHMSTORE_WERROR=ON \
    -DSHMSTORE_BENCH=OFF &&
    cmake --build build/gcc11 -j "$jobs" || return 1
  ctest_in build/gcc11 -LE 'readme|stress|slow'
}

stage_old_libc() {
  script count_line tests/old/run
}

# Built by Debian's cross compiler; the races run in an emulator, which has Arm's instructions and
# this machine's memory order.
stage_arm64() {
  want_packages aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu g++-aarch64-linux-gnu || return 0
  script count_line tests/arm64/run
}

stage_mutants() {
  local status=0 rooms
  build_release || return 1
  for rooms in arbiter pressure segment segfile daemon; do
    "tests/mutants/$rooms" >"$logs/$stage.mutants" 2>&1 || status=1
    cat "$logs/$stage.mutants"
    add_counts "$(awk '/ caught, .* survive, .* missing$/ { gsub(/,/, ""); print $1, $3 + $5, 0 }' \
      "$logs/$stage.mutants")"
  done
  return $status
}
