# SPDX-License-Identifier: Apache-2.0
"""shmstore-admin doctor: on the real host, and on hosts that a made-up
/proc, /sys and /etc show."""
import json
import os
import resource
import subprocess
import tempfile
from pathlib import Path

import pytest

from admin_support import (ADMIN, NOBODY, ROOT, Admin, admin, bare, environment, mount_tmpfs,
                           needs_root,  # noqa: F401
                           terminal, unmount)

CHECKS = {"partition", "tmpfs", "size", "huge", "mpol", "inodes", "links", "exdev", "swap",
          "cgroup", "open-files", "map-count",
          "protected-hardlinks", "remove-ipc", "proc", "o-tmpfile", "openat2", "refused", "leases",
          "renameat2", "huge-pages", "daemon", "io-uring", "access-lists", "tmpfs-quota", "tier"}
GIB = 1 << 30


class Host:
    """A made-up host: the files of /proc, /sys and /etc that the doctor reads, for
    a partition that is real."""

    def __init__(self, root, partition):
        self.root, self.partition = root, partition
        fs = os.statvfs(partition)  # plenty of RAM for it, also where it is all of /dev/shm
        self.ram = max(16 * GIB, 4 * fs.f_blocks * fs.f_frsize)
        self.memory()
        self.write("/proc/sys/vm/max_map_count", "65530\n")
        self.write("/proc/sys/fs/protected_hardlinks", "1\n")
        self.write("/proc/self/cgroup", "0::/\n")
        self.write("/sys/kernel/mm/transparent_hugepage/shmem_enabled",
                   "always within_size advise [never] deny force\n")
        self.mounts()

    def write(self, path, text):
        p = Path(str(self.root) + path)
        p.parent.mkdir(parents=True, exist_ok=True)
        p.write_text(text)

    def memory(self, ram=None, swap=0):
        self.write("/proc/meminfo", f"MemTotal: {(ram or self.ram) >> 10} kB\nSwapTotal: "
                                    f"{swap >> 10} kB\n")

    def mounts(self, *more, options="rw,size=65536k,huge=within_size", root="/", proc="rw"):
        lines = ["22 1 254:0 / / rw,relatime - ext4 /dev/vda rw",
                 f"23 22 0:21 / /proc rw,relatime - proc proc {proc}",
                 "24 22 0:25 / /dev/shm rw - tmpfs tmpfs rw",
                 f"25 22 0:99 {root} {str(self.partition).replace(' ', chr(92) + '040')} rw,nosuid "
                 f"shared:1 - tmpfs t {options}",
                 *more]
        self.write("/proc/self/mountinfo", "\n".join(lines) + "\n")

    def doctor(self, a, **kwargs):
        """The findings by check; also that every finding is well formed, and that the
        exit status says the same."""
        r = a("--json", "doctor", env={"SHMSTORE_ADMIN_ROOT": str(self.root)}, code=None, **kwargs)
        findings = r.json["findings"]
        for f in findings:
            assert set(f) >= {"check", "level", "found", "fix"} and f["found"]
            assert f["level"] in ("ok", "warn", "fail")
            assert not (f["level"] == "ok" and f["fix"]), f
        assert r.code == (1 if any(f["level"] == "fail" for f in findings) else 0), r
        assert len({f["check"] for f in findings}) == len(findings)
        return {f["check"]: f for f in findings}


@pytest.fixture
def host(bare):
    with tempfile.TemporaryDirectory(prefix="shmstore-host-") as d:
        Path(d).chmod(0o755)
        yield Host(d, bare)


def test_a_good_host_is_all_ok(admin, host):
    found = host.doctor(admin)
    assert set(found) == CHECKS
    assert {c for c, f in found.items() if f["level"] != "ok"} == set()


@needs_root
def test_the_real_host(admin):
    r = admin("--json", "doctor", code=None)
    found = {f["check"]: f for f in r.json["findings"]}
    assert set(found) == CHECKS and r.json["initialised"] is True
    for check in ("partition", "tmpfs", "size", "links", "exdev", "o-tmpfile", "openat2", "leases",
                  "renameat2"):
        assert found[check]["level"] == "ok", found[check]
    assert found["huge"]["level"] == "warn"  # the fixture's mount has none
    assert r.code == 0
    assert [p.name for p in Path(admin.path).iterdir() if "doctor" in p.name] == []
    text = admin("doctor").out
    assert "\nwarn  huge " in text and f"$ mount -o remount,huge=within_size {admin.path}\n" in text


@needs_root
def test_the_fix_mends_it(admin):
    fix = next(f["fix"] for f in admin.json("doctor")["findings"] if f["check"] == "huge")
    subprocess.run(fix, shell=True, check=True)
    assert next(f["level"] for f in admin.json("doctor")["findings"]
                if f["check"] == "huge") == "ok"


def test_without_a_partition(bare, host):
    found = host.doctor(Admin(bare))
    assert (found["partition"]["level"] == "warn" and
            "not initialised" in found["partition"]["found"])
    assert found["partition"]["fix"] == f"shmstore-admin -p {bare} init"
    found = host.doctor(Admin(bare / "none" / "deeper"))
    assert "there is no such directory" in found["partition"]["found"]
    assert found["tmpfs"]["level"] == "ok"  # the nearest directory's


def test_on_a_disk(host, tmp_path):
    if subprocess.run(["stat", "-f", "-c", "%T", tmp_path], capture_output=True,
                      check=True).stdout.strip() == b"tmpfs":
        pytest.skip("the temporary directory is on a tmpfs")
    found = host.doctor(Admin(tmp_path))
    assert (found["tmpfs"]["level"] == "fail" and
            "disk file system (ext4)" in found["tmpfs"]["found"])
    assert "init --size" in found["tmpfs"]["fix"]
    assert host.doctor(Admin(tmp_path / "none"))["tmpfs"]["level"] == "warn"
    a = Admin(tmp_path / "allowed")
    a("init", "--allow-disk")
    assert host.doctor(a)["tmpfs"]["level"] == "warn"


@needs_root
@pytest.mark.parametrize("ram,swap,level", [(16 << 20, 0, "fail"), (40 << 20, 0, "fail"),
                                            (40 << 20, 64 << 20, "warn"),
                                            (100 << 20, 0, "warn"), (130 << 20, 0, "ok")])
def test_size_against_ram_and_swap(admin, host, ram, swap, level):
    """The fixture's partition has 64 MiB."""
    host.memory(ram, swap)
    found = host.doctor(admin)
    assert found["size"]["level"] == level, found["size"]
    assert (found["size"]["fix"] == "") == (level == "ok")
    assert found["swap"]["level"] == ("warn" if swap else "ok")


def test_swap_and_noswap(admin, host):
    host.memory(swap=GIB)
    assert host.doctor(admin)["swap"]["level"] == "warn"
    host.mounts(options="rw,size=65536k,huge=within_size,noswap")
    assert host.doctor(admin)["swap"]["level"] == "ok"


def test_numa_policy(admin, host):
    assert "whoever writes it first" in host.doctor(admin)["mpol"]["found"]
    host.mounts(options="rw,mpol=interleave:0-1,3,huge=within_size")
    assert host.doctor(admin)["mpol"]["found"] == "mpol=interleave:0-1,3"


@pytest.mark.parametrize("options,level", [("rw", "warn"), ("rw,huge=never", "warn"),
                                           ("rw,huge=advise", "warn"),
                                           ("rw,huge=always", "warn"),
                                           ("rw,huge=within_size", "ok")])
def test_huge(admin, host, options, level):
    host.mounts(options=options)
    f = host.doctor(admin)["huge"]
    assert f["level"] == level
    assert level == "ok" or f["fix"].endswith(f"mount -o remount,huge=within_size {admin.path}")


@pytest.mark.parametrize("text,level", [("always within_size advise never [deny] force", "warn"),
                                        ("[always] within_size advise never deny force", "ok"),
                                        (None, "warn")])
def test_huge_pages(admin, host, text, level):
    path = "/sys/kernel/mm/transparent_hugepage/shmem_enabled"
    if text is None:
        Path(str(host.root) + path).unlink()
    else:
        host.write(path, text + "\n")
    assert host.doctor(admin)["huge-pages"]["level"] == level


V2 = "30 22 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw"
V1 = ("30 22 0:30 / /sys/fs/cgroup rw - tmpfs tmpfs rw", "31 30 0:31 / /sys/fs/cgroup/cpu rw - "
                                                         "cgroup cgroup rw,cpu",
      "32 30 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory")


@needs_root
@pytest.mark.parametrize("limit,level", [("max", "ok"), (32 << 20, "warn"), (100 << 20, "warn"),
                                         (256 << 20, "ok"),
                                         (64 * GIB, "ok")])
@pytest.mark.parametrize("where", ["/a/b", "/a", ""])
def test_cgroup_v2(admin, host, limit, level, where):
    """The lowest limit on the way up to the root counts."""
    host.mounts(V2)
    host.write("/proc/self/cgroup", "0::/a/b\n")
    for group in ("/a", "/a/b"):
        host.write(f"/sys/fs/cgroup{group}/memory.max", "max\n")
    host.write(f"/sys/fs/cgroup{where}/memory.max", f"{limit}\n")
    f = host.doctor(admin)["cgroup"]
    assert f["level"] == level, f
    if level == "warn":
        assert f"/sys/fs/cgroup{where}/memory.max" in f["found"]
        assert f"size={limit // 2}" in f["fix"]


@needs_root
@pytest.mark.parametrize("outer,inner,lowest", [(32, 40, "/a"), (40, 32, "/a/b")])
def test_the_lowest_cgroup_limit_counts(admin, host, outer, inner, lowest):
    host.mounts(V2)
    host.write("/proc/self/cgroup", "0::/a/b\n")
    host.write("/sys/fs/cgroup/a/memory.max", f"{outer << 20}\n")
    host.write("/sys/fs/cgroup/a/b/memory.max", f"{inner << 20}\n")
    assert f"32.0 MiB (/sys/fs/cgroup{lowest}/memory.max)" in host.doctor(admin)["cgroup"]["found"]


@needs_root
@pytest.mark.parametrize("limit,level", [(9223372036854771712, "ok"), (32 << 20, "warn")])
def test_cgroup_v1(admin, host, limit, level):
    host.mounts(*V1)
    host.write("/proc/self/cgroup", "5:cpu,cpuacct:/other\n4:memory:/job/1\n0::/\n")
    host.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    host.write("/sys/fs/cgroup/memory/job/1/memory.limit_in_bytes", f"{limit}\n")
    f = host.doctor(admin)["cgroup"]
    assert f["level"] == level, f
    assert level == "ok" or "/sys/fs/cgroup/memory/job/1/memory.limit_in_bytes" in f["found"]


@needs_root
def test_cgroup_of_a_container(admin, host):
    """The group is told from the host's root, but only the container's part is mounted."""
    host.mounts("32 22 0:32 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory")
    host.write("/proc/self/cgroup", "4:memory:/docker/abc\n")
    host.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", f"{32 << 20}\n")
    assert host.doctor(admin)["cgroup"]["level"] == "warn"


def test_no_cgroups(admin, host):
    Path(str(host.root) + "/proc/self/cgroup").unlink()
    assert host.doctor(admin)["cgroup"]["level"] == "ok"


@pytest.mark.parametrize("soft,hard,level", [(32, 4096, "fail"), (256, 4096, "warn"),
                                             (256, 256, "warn"), (1024, 4096, "ok")])
def test_open_files(admin, host, soft, hard, level):
    def limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    r = subprocess.run([ADMIN, "-p", admin.path, "--json", "doctor"], capture_output=True,
                       check=False, preexec_fn=limit,
                       env=environment(SHMSTORE_ADMIN_ROOT=str(host.root)), timeout=60)
    f = {f["check"]: f for f in json.loads(r.stdout)["findings"]}["open-files"]
    assert f["level"] == level and f"ulimit -n is {soft}" in f["found"]
    assert r.returncode == (level == "fail")
    if level != "ok":
        assert ("ulimit -n 4096" in f["fix"]) == (hard == 4096)


@pytest.mark.parametrize("count,level", [("1000", "fail"), ("30000", "warn"), ("65530", "ok"),
                                         ("rubbish", "warn")])
def test_map_count(admin, host, count, level):
    host.write("/proc/sys/vm/max_map_count", count + "\n")
    f = host.doctor(admin)["map-count"]
    assert f["level"] == level
    if count.isdigit() and level != "ok":
        assert f["fix"].endswith("sysctl vm.max_map_count=262144")


@pytest.mark.parametrize("value,level", [("0", "warn"), ("1", "ok")])
def test_protected_hardlinks(admin, host, value, level):
    host.write("/proc/sys/fs/protected_hardlinks", value + "\n")
    assert host.doctor(admin)["protected-hardlinks"]["level"] == level


@needs_root
def test_inodes(bare, host):
    unmount(bare)
    mount_tmpfs(bare, "size=64m,nr_inodes=40")
    a = Admin(bare)
    a("init")
    assert host.doctor(a)["inodes"]["level"] == "ok"
    names = iter(range(1000))

    def free():
        return os.statvfs(bare).f_ffree

    while free() > 3:
        (bare / f"f{next(names)}").touch()
    f = host.doctor(a)["inodes"]
    assert f["level"] == "warn" and "nr_inodes=" in f["fix"]
    while free():
        (bare / f"f{next(names)}").touch()
    assert host.doctor(a)["inodes"]["level"] == "fail"


@needs_root
def test_another_mount_inside_gives_exdev(admin, host):
    """Real mounts: a store that is a bind mount of itself is another mount to link(2)."""
    admin("put", "s", "k", stdin=b"x")
    store = Path(admin.path) / "stores" / "s"
    subprocess.run(["mount", "--bind", store, store], check=True)
    try:
        r = admin("--json", "doctor", code=1)
        f = {f["check"]: f for f in r.json["findings"]}["exdev"]
        assert f["level"] == "fail" and str(store) in f["found"] and f["fix"] == f"umount {store}"
        # told by the store's own mount where mountinfo does not show it
        f = host.doctor(admin)["exdev"]
        assert f["level"] == "fail" and f"the store {store} is on another mount" in f["found"]
        subprocess.run(["umount", store], check=True)
        assert {f["check"]: f for f in admin.json("doctor")["findings"]}["exdev"]["level"] == "ok"
    finally:
        unmount(store)


def test_a_bind_mount_of_a_part(admin, host):
    host.mounts(root="/part")
    f = host.doctor(admin)["exdev"]
    assert f["level"] == "warn" and "bind mount of /part" in f["found"]


def test_a_mount_below(bare, host):
    host.mounts(f"40 25 0:98 / {bare}/inner rw - tmpfs tmpfs rw")
    assert host.doctor(Admin(bare))["exdev"]["level"] == "fail"


@pytest.fixture
def user_directory():
    """An unprivileged user's directory in /dev/shm itself."""
    with tempfile.TemporaryDirectory(prefix="shmstore-admin-", dir="/dev/shm") as d:
        if ROOT:
            os.chown(d, NOBODY, NOBODY)
        yield Path(d)


@pytest.mark.parametrize("files,level", [
    ({}, "warn"),  # yes is the default
    ({"etc/systemd/logind.conf": "[Login]\nRemoveIPC=no\n"}, "ok"),
    ({"etc/systemd/logind.conf": "[Login]\n#RemoveIPC=no\n"}, "warn"),
    ({"etc/systemd/logind.conf": "[Other]\nRemoveIPC=no\n"}, "warn"),
    ({"etc/systemd/logind.conf": "[Login]\nRemoveIPC=no\n", "etc/systemd/logind.conf.d/a.conf":
          "[Login]\nRemoveIPC = yes\n"},
     "warn"),
    ({"etc/systemd/logind.conf.d/a.conf": "[Login]\nRemoveIPC=yes\n",
      "usr/lib/systemd/logind.conf.d/b.conf":
      "[Login]\nRemoveIPC=off\n"}, "ok"),  # by name, whatever the directory
    ({"etc/systemd/logind.conf.d/z.conf": "[Login]\nRemoveIPC=yes\n",
      "usr/lib/systemd/logind.conf.d/a.conf":
      "[Login]\nRemoveIPC=no\n"}, "warn"),
    ({"etc/systemd/logind.conf.d/a.conf": "[Login]\n", "usr/lib/systemd/logind.conf.d/a.conf":
          "[Login]\nRemoveIPC=no\n"},
     "warn"),  # hidden by the one of the same name in /etc
    ({"etc/systemd/logind.conf.d/a.confx": "[Login]\nRemoveIPC=no\n"}, "warn"),
    (None, "ok"),  # no systemd
])
def test_remove_ipc(user_directory, host, files, level):
    if files is not None:
        host.write("/run/systemd/system/x", "")
    for path, text in (files or {}).items():
        host.write("/" + path, text)
    host.mounts()
    a = Admin(user_directory)
    f = host.doctor(a)["remove-ipc"]
    assert f["level"] == level, f
    assert level == "ok" or "RemoveIPC=no" in f["fix"]


def test_remove_ipc_does_not_matter_elsewhere(admin, host):
    host.write("/run/systemd/system/x", "")
    assert host.doctor(admin)["remove-ipc"]["level"] == "ok" or not ROOT


@needs_root
def test_hidepid(host, bare):
    bare.chmod(0o755)
    os.chown(bare, NOBODY, NOBODY)
    a = Admin(bare).as_nobody()
    assert host.doctor(a)["proc"]["level"] == "ok"
    for value in ("2", "invisible"):
        host.mounts(proc=f"rw,hidepid={value}")
        f = host.doctor(a)["proc"]
        assert f["level"] == "warn" and f["fix"].startswith("sudo mount")
        assert host.doctor(Admin(bare))["proc"]["level"] == "ok"  # root sees all


@needs_root
def test_not_allowed(admin, host):
    Path(admin.path).chmod(0o755)
    (Path(admin.path) / "stores").chmod(0o700)
    found = host.doctor(admin.as_nobody())
    assert found["links"]["level"] == "warn" and "not tried" in found["links"]["found"]


def test_damaged_marker(admin, host):
    marker = Path(admin.path) / ".shmstore"
    marker.chmod(0o600)
    marker.write_text("rubbish\n")
    assert host.doctor(admin)["partition"]["level"] == "fail"
    assert "its marker .shmstore is damaged" in admin("df", code=1).err


def test_a_path_with_a_space(bare, host):
    d = bare / "a b"
    d.mkdir()
    h = Host(host.root, d)
    h.mounts(options="rw,huge=within_size")
    a = Admin(d)
    a("init")
    assert h.doctor(a)["huge"]["level"] == "ok"


def test_text_is_wrapped_but_the_fix_is_not(bare, terminal):
    seen = terminal("-p", bare / ("x" * 90), "doctor", columns=60).read_until(None).decode()
    fix = next(line for line in seen.splitlines() if "$ " in line and "init" in line)
    assert "x" * 90 in fix
    assert any(line.startswith(" " * 26) and "$" not in line for line in seen.splitlines())
