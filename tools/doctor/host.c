/* SPDX-License-Identifier: Apache-2.0 */
/* doctor_host.c: limits and settings of the host that decide whether shared memory can
 * be filled, mapped and kept. */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <unistd.h>

#include "doctor.h"
#include "human.h"
#include "message.h"
#include "shellword.h"
#include "sysroot.h"

static void check_swap(struct doctor *d)
{
	char swap[HUMAN_SIZE], value[8];

	if (!d->swap) {
		doctor_add(d, "swap", DOCTOR_OK, "none: objects stay in memory");
		return;
	}
	human_size(d->swap, swap);
	if (d->mount && mountinfo_option(d->mount->super, "noswap", value, sizeof(value))) {
		doctor_add(d, "swap", DOCTOR_OK, "%s, and the mount has noswap", swap);
		return;
	}
	doctor_add(d, "swap", DOCTOR_WARN,
		   "%s: objects may be swapped out, and reading them waits for the disk", swap);
	doctor_fix_root(d, "sysctl vm.swappiness=1");
}

/* The lowest limit of our memory cgroup and of those around it. ret_file: where it is written.
 * UINT64_MAX: there is none. */
static uint64_t lowest_limit(const struct doctor *d, char ret_file[PATH_MAX])
{
	uint64_t lowest = UINT64_MAX;

	for (size_t i = 1; i < d->memory.n_levels; i++) {
		const struct memsource_level *l = &d->memory.levels[i];
		const struct memsource_term *limit = &l->terms[0];

		if (limit->state != MEMSOURCE_READ || (uint64_t)limit->bytes >= lowest)
			continue;
		lowest = (uint64_t)limit->bytes;
		snprintf(ret_file, PATH_MAX, "%s/%s", l->path + strlen(d->admin->root),
			 limit->name);
	}
	return lowest;
}

static void check_cgroup(struct doctor *d)
{
	char file[PATH_MAX], size[HUMAN_SIZE], limit_text[HUMAN_SIZE];
	uint64_t limit = lowest_limit(d, file);

	if (limit == UINT64_MAX || (d->ram && limit >= d->ram)) {
		doctor_add(d, "cgroup", DOCTOR_OK, "no memory limit below the RAM");
		return;
	}
	human_size(limit, limit_text);
	human_size(d->size, size);
	if (d->tmpfs && d->size && limit >= d->size * 2) {
		doctor_add(d, "cgroup", DOCTOR_OK, "memory limit %s (%s)", limit_text, file);
		return;
	}
	doctor_add(d, "cgroup", DOCTOR_WARN, "memory limit %s (%s), %s: %s", limit_text, file,
		   d->tmpfs && d->size && limit >= d->size ? "less than twice the partition"
							   : "less than the partition",
		   d->tmpfs && d->size && limit >= d->size
			   ? "what is in it leaves little for the processes"
			   : "writers are killed before it is full");
	if (d->tmpfs)
		doctor_fix_root(d, "mount -o remount,size=%" PRIu64 " %s",
				limit / 2 & ~(uint64_t)4095,
				shellword(d->mount ? d->mount->point : d->dir));
	else
		doctor_fix_root(d, ADMIN_NAME " -p %s init --size %" PRIu64, shellword(d->path),
				limit / 2 & ~(uint64_t)4095);
}

static void check_open_files(struct doctor *d)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return;
	enum doctor_level level = limit.rlim_cur < 64     ? DOCTOR_FAIL
				  : limit.rlim_cur < 1024 ? DOCTOR_WARN
							  : DOCTOR_OK;
	if (level == DOCTOR_OK) {
		doctor_add(d, "open-files", level, "ulimit -n is %" PRIu64,
			   (uint64_t)limit.rlim_cur);
		return;
	}
	doctor_add(d, "open-files", level,
		   "ulimit -n is %" PRIu64 ": at least 1024 are recommended",
		   (uint64_t)limit.rlim_cur);
	if (limit.rlim_max >= 1024)
		doctor_fix(d, "ulimit -n %" PRIu64,
			   (uint64_t)(limit.rlim_max < 65536 ? limit.rlim_max : 65536));
	else
		doctor_fix_root(d, "prlimit --nofile=65536:65536 --pid $$");
}

static void check_map_count(struct doctor *d)
{
	uint64_t count;

	if (!sysroot_number(d->admin, "/proc/sys/vm/max_map_count", &count)) {
		doctor_add(d, "map-count", DOCTOR_WARN, "vm.max_map_count cannot be read");
		return;
	}
	enum doctor_level level = count < 4096    ? DOCTOR_FAIL
				  : count < 65530 ? DOCTOR_WARN
						  : DOCTOR_OK;
	doctor_add(d, "map-count", level,
		   "vm.max_map_count is %" PRIu64 ": so many views, at most, can one process hold",
		   count);
	if (level != DOCTOR_OK)
		doctor_fix_root(d, "sysctl vm.max_map_count=262144");
}

static void check_hardlinks(struct doctor *d)
{
	uint64_t value;

	if (!sysroot_number(d->admin, "/proc/sys/fs/protected_hardlinks", &value)) {
		doctor_add(d, "protected-hardlinks", DOCTOR_WARN,
			   "fs.protected_hardlinks cannot be read");
	} else if (value) {
		doctor_add(d, "protected-hardlinks", DOCTOR_OK,
			   "fs.protected_hardlinks is %" PRIu64
			   ": no user can link another user's objects",
			   value);
	} else {
		doctor_add(d, "protected-hardlinks", DOCTOR_WARN,
			   "fs.protected_hardlinks is 0: users can pin the memory of others by "
			   "linking it");
		doctor_fix_root(d, "sysctl fs.protected_hardlinks=1");
	}
}

/* ---- RemoveIPC ---- */

/* The value of RemoveIPC= in a logind.conf: 1, 0, or before where the text does not say. */
static int remove_ipc_of(char *text, int before)
{
	char *save = NULL;
	bool login = false;

	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		line += strspn(line, " \t");
		if (*line == '[')
			login = strncmp(line, "[Login]", 7) == 0;
		if (!login || strncmp(line, "RemoveIPC", 9) != 0)
			continue;
		line += 9;
		line += strspn(line, " \t");
		if (*line++ != '=')
			continue;
		line += strspn(line, " \t");
		size_t n = strcspn(line, " \t\r");
		if (n == 0)
			before = -1; /* an empty value: the default again */
		for (size_t i = 0; i < 10; i++) {
			static const char *const words[] = {"no", "yes", "false", "true", "off",
							    "on", "0",   "1",     "n",    "y"};
			if (strlen(words[i]) == n && strncasecmp(line, words[i], n) == 0)
				before = (int)(i % 2);
		}
	}
	return before;
}

static int read_remove_ipc(const struct admin *a, const char *path, int before)
{
	char *text = sysroot_read(a, path);
	int value = text ? remove_ipc_of(text, before) : before;

	free(text);
	return value;
}

struct dropin {
	char name[NAME_MAX + 1];
	const char *dir;
};

static int by_name(const void *x, const void *y)
{
	return strcmp(((const struct dropin *)x)->name, ((const struct dropin *)y)->name);
}

/* Adds the *.conf of a directory, but for names that a directory of more weight has. */
static void add_dropins(const struct admin *a, const char *dir, struct dropin **list, size_t *n)
{
	char *full = sysroot_path(a, dir);
	DIR *d = opendir(full);
	const struct dirent *e;

	free(full);
	while (d && (e = readdir(d))) {
		size_t size = strlen(e->d_name), i = 0;
		if (size < 6 || strcmp(e->d_name + size - 5, ".conf") != 0)
			continue;
		while (i < *n && strcmp((*list)[i].name, e->d_name) != 0)
			i++;
		if (i < *n)
			continue;
		struct dropin *grown = realloc(*list, (*n + 1) * sizeof(*grown));
		if (!grown)
			message_no_memory();
		*list = grown;
		snprintf(grown[*n].name, sizeof(grown[*n].name), "%s", e->d_name);
		grown[(*n)++].dir = dir;
	}
	if (d)
		closedir(d);
}

/* Reads logind.conf, then the drop-ins of all directories in order of name (logind.conf(5)). */
static bool removes_ipc(const struct admin *a)
{
	static const char *const dirs[] = {
		"/etc/systemd/logind.conf.d", "/run/systemd/logind.conf.d",
		"/usr/local/lib/systemd/logind.conf.d", "/usr/lib/systemd/logind.conf.d"};
	struct dropin *list = NULL;
	size_t n = 0;
	char path[PATH_MAX];
	int value = read_remove_ipc(a, "/etc/systemd/logind.conf", -1);

	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++)
		add_dropins(a, dirs[i], &list, &n);
	if (n)
		qsort(list, n, sizeof(*list), by_name);
	for (size_t i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "%s/%s", list[i].dir, list[i].name);
		value = read_remove_ipc(a, path, value);
	}
	free(list);
	return value != 0; /* yes is the default */
}

static void check_remove_ipc(struct doctor *d)
{
	const char *dir = d->exists ? d->dir : d->path;

	if (strcmp(dir, "/dev/shm") != 0 && !mountinfo_below(dir, "/dev/shm")) {
		doctor_add(d, "remove-ipc", DOCTOR_OK, "not in /dev/shm: systemd leaves it alone");
	} else if (d->mount && d->exists && strcmp(d->mount->point, "/dev/shm") != 0 &&
		   strcmp(d->mount->point, "/dev") != 0 && strcmp(d->mount->point, "/") != 0) {
		doctor_add(d, "remove-ipc", DOCTOR_OK,
			   "a mount of its own: it stays when a user logs out");
	} else if (d->owner < 1000) {
		doctor_add(d, "remove-ipc", DOCTOR_OK,
			   "user %u is a system user: systemd leaves its files alone", d->owner);
	} else if (!sysroot_exists(d->admin, "/run/systemd/system")) {
		doctor_add(d, "remove-ipc", DOCTOR_OK, "systemd does not run here");
	} else if (!removes_ipc(d->admin)) {
		doctor_add(d, "remove-ipc", DOCTOR_OK, "RemoveIPC=no");
	} else {
		doctor_add(d, "remove-ipc", DOCTOR_WARN,
			   "RemoveIPC=yes: systemd removes the files of user %u from /dev/shm when "
			   "their last session ends",
			   d->owner);
		doctor_fix_root(
			d,
			"sh -c 'mkdir -p /etc/systemd/logind.conf.d && printf "
			"\"[Login]\\nRemoveIPC=no\\n\" > /etc/systemd/logind.conf.d/shmstore.conf "
			"&& systemctl restart systemd-logind'");
	}
}

static void check_proc(struct doctor *d)
{
	char hidepid[16] = "";
	const struct shms_mountline *m = mountinfo_find(&d->mounts, "/proc");

	if (!m || strcmp(m->type, "proc") != 0) {
		doctor_add(d, "proc", DOCTOR_WARN,
			   "/proc is not mounted: reconcile cannot name holders");
		return;
	}
	if (!mountinfo_option(m->super, "hidepid", hidepid, sizeof(hidepid)))
		mountinfo_option(m->options, "hidepid", hidepid, sizeof(hidepid));
	bool hidden = hidepid[0] && strcmp(hidepid, "0") != 0 && strcmp(hidepid, "off") != 0;
	if (geteuid() == 0) {
		doctor_add(d, "proc", DOCTOR_OK, "root may look into every process%s%s",
			   hidden ? "; hidepid=" : "", hidepid);
	} else if (!hidden) {
		doctor_add(d, "proc", DOCTOR_OK,
			   "your own processes can be looked into; those of others need root");
	} else {
		doctor_add(d, "proc", DOCTOR_WARN,
			   "hidepid=%s: reconcile does not see processes of other users", hidepid);
		doctor_fix_root(d, "mount -o remount,hidepid=0 /proc");
	}
}

void doctor_check_host(struct doctor *d)
{
	check_swap(d);
	check_cgroup(d);
	check_open_files(d);
	check_map_count(d);
	check_hardlinks(d);
	check_remove_ipc(d);
	check_proc(d);
}
