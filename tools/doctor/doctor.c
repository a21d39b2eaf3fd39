/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor.c: gathers what every check needs and keeps the findings. Files of /proc, /sys and /etc
 * are read through sysroot.h, so that a test can show another machine; the partition itself, limits
 * and system calls are always the real ones.
 */
#include "doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/io_uring.h>
#include <linux/magic.h>
#include <linux/mount.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "admin.h"
#include "asking.h"
#include "cleanup.h"
#include "jsonin.h"
#include "jsonmake.h"
#include "opening.h"
#include "options.h"
#include "sysroot.h"

static const char *const levels[] = {"ok", "warn", "fail"};

static __attribute__((format(printf, 4, 0))) void set_text(struct json_object *o, const char *name,
							   const char *prefix, const char *format,
							   va_list args)
{
	char *text, *whole;

	if (vasprintf(&text, format, args) < 0 || asprintf(&whole, "%s%s", prefix, text) < 0)
		message_no_memory();
	jsonmake_prose(o, name, whole);
	free(whole);
	free(text);
}

static void run(struct doctor *d, const struct doctor_check *list)
{
	for (; list->name; list++) {
		d->check = list->name;
		list->run(d);
	}
}

void doctor_add(struct doctor *d, enum doctor_level level, const char *found, ...)
{
	va_list args;

	d->last = jsonmake_append(d->findings, jsonmake_new());
	d->counts[level]++;
	jsonmake_prose(d->last, "check", d->check);
	jsonmake_prose(d->last, "level", levels[level]);
	va_start(args, found);
	set_text(d->last, "found", "", found, args);
	va_end(args);
	jsonmake_prose(d->last, "fix", "");
}

void doctor_fix_as(struct doctor *d, bool root, const char *command, ...)
{
	va_list args;

	va_start(args, command);
	set_text(d->last, "fix", root && geteuid() != 0 ? "sudo " : "", command, args);
	va_end(args);
}

int doctor_try_file(const char *dir, int flags)
{
	char name[PATH_MAX + 32];
	int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600);

	/* A file system without O_TMPFILE, or without what flags ask for. */
	if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) {
		snprintf(name, sizeof(name), "%s/.doctor-%d", dir, getpid());
		fd = open(name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | flags, 0600);
		if (fd >= 0)
			unlink(name);
	}
	return fd < 0 ? -errno : fd;
}

/* The nearest directory above path that exists, canonical. */
static void find_dir(struct doctor *d)
{
	char text[PATH_MAX];

	snprintf(text, sizeof(text), "%s", d->path);
	while (!realpath(text, d->dir)) {
		char *slash = strrchr(text, '/');
		if (slash == text)
			strcpy(text, "/");
		else if (slash)
			*slash = '\0';
		else
			strcpy(text, ".");
	}
}

static uint64_t term_of_host(const struct doctor *d, const char *name)
{
	const struct memsource_level *host = &d->memory.levels[0];

	for (size_t i = 0; i < host->n_terms; i++)
		if (strcmp(host->terms[i].name, name) == 0 &&
		    host->terms[i].state == MEMSOURCE_READ)
			return (uint64_t)host->terms[i].bytes;
	return 0;
}

/* Looks at path; nothing is checked yet. */
static void doctor_init(struct doctor *d, const struct admin *a, const char *path)
{
	struct statvfs fs;
	struct statfs type;
	struct stat st;

	*d = (struct doctor){.admin = a,
			     .owner = geteuid(),
			     .info = {.size = sizeof(d->info)},
			     .findings = jsonmake_new_list()};
	snprintf(d->path, sizeof(d->path), "%s", path);
	d->exists = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
	if (d->exists)
		d->owner = st.st_uid;
	find_dir(d);
	d->writable = d->exists && access(d->dir, W_OK | X_OK) == 0;
	mountinfo_read(a, &d->mounts);
	d->mount = mountinfo_find(&d->mounts, d->dir);
	d->tmpfs = statfs(d->dir, &type) == 0 && type.f_type == TMPFS_MAGIC;
	if (statvfs(d->dir, &fs) == 0) {
		d->size = (uint64_t)fs.f_blocks * fs.f_frsize;
		d->inodes = fs.f_files;
		d->inodes_free = fs.f_ffree;
	}
	if (sysroot_memory(a, false, &d->memory) < 0)
		message_no_memory();
	d->ram = term_of_host(d, "MemTotal");
	d->swap = term_of_host(d, "SwapTotal");
	d->error = shmstore_partition_open(path, opening_flags(a), &d->p);
	snprintf(d->reason, sizeof(d->reason), "%s", shmstore_error_detail());
	if (d->error == 0)
		d->error = shmstore_partition_info(d->p, &d->info);
	else
		d->p = NULL;
}

/* ---- the daemon ------------------------------------------------------------------------------ */

/*
 * shmstored, and its needs of the host beyond those of stores: io_uring for the disk tier, access
 * lists for handoffs between users, quotas of the kernel's own. A host without the daemon is in
 * order: its absence is told with the command that starts it.
 */

#define ASK_MS 1000u

/* The daemon's STATUS about all partitions; NULL: none answers, and it is said. */
static struct json_object *ask_status(struct doctor *d, struct shmstore_client *c)
{
	struct json_object *document = NULL;
	int r = asking_ask(c, SHMSTORE_QUERY_STATUS, NULL, &document);

	if (r == -EBADMSG && !*shmstore_client_reason(c))
		doctor_fail(d, "what answers at %s is no shmstored", shmstore_client_path(c));
	if (r == 0 || (r == -EBADMSG && !*shmstore_client_reason(c)))
		return document;
	if (r == -ENOENT && access(shmstore_client_path(c), F_OK) < 0) {
		doctor_ok(d,
			  "none runs (no socket at %s); for quotas, clean-up at once and "
			  "metrics: " ASKING_START_DAEMON,
			  shmstore_client_path(c));
		return NULL;
	}
	doctor_warn(d, "%s: %s", shmstore_client_path(c), shmstore_client_reason(c));
	if (r == -EPERM)
		doctor_fix(d, "sudo " ADMIN_NAME " doctor");
	else
		doctor_fix_root(d, "systemctl restart shmstored");
	return NULL;
}

static void check_partition(struct doctor *d, const struct json_object *document)
{
	if (!d->p)
		return;
	d->check = "daemon-partition";
	for (size_t i = 0; i < jsonin_count(document, "partitions"); i++) {
		if (strcmp(jsonin_text(jsonin_at(document, "partitions", i), "uuid"),
			   d->info.uuid) == 0) {
			doctor_ok(d, "the daemon watches this partition");
			return;
		}
	}
	doctor_warn(d, "the daemon does not watch this partition");
	if (strcmp(shellword(d->dir), d->dir) == 0)
		doctor_fix_root(
			d,
			"sh -c 'mkdir -p /etc/shmstore/shmstored.conf.d && echo \"partition "
			"\\\"%s\\\" {}\" > /etc/shmstore/shmstored.conf.d/partition.conf && "
			"systemctl restart shmstored'",
			d->dir);
	else
		doctor_fix(d, "# name it in /etc/shmstore/shmstored.conf, and restart the daemon");
}

static void check_daemon(struct doctor *d)
{
	_client_ struct shmstore_client *c = NULL;

	if (asking_client(d->admin, ASK_MS, &c) < 0) {
		doctor_fail(d, "its socket's path is too long");
		return;
	}
	_json_ struct json_object *document = ask_status(d, c);
	if (!document)
		return;
	const struct json_object *daemon = jsonin_object(document, "daemon");
	const char *version = jsonin_text(daemon, "version");
	const bool same = strcmp(version, shmstore_version()) == 0;
	doctor_add(d, same ? DOCTOR_OK : DOCTOR_WARN, "version %s at %s, pid %" PRId64 ", on %s%s",
		   version, shmstore_client_path(c), jsonin_i64(daemon, "pid"),
		   jsonin_text(daemon, "backend"), same ? "" : "; this tool is of another version");
	check_partition(d, document);
}

/* The sysctl decides for all; what a seccomp filter or an old kernel says, trying shows. */
static void check_io_uring(struct doctor *d)
{
	struct io_uring_params params = {0};
	uint64_t disabled = 0;
	long fd;

	sysroot_number(d->admin, "/proc/sys/kernel/io_uring_disabled", &disabled);
	if (disabled) {
		doctor_warn(d,
			    "kernel.io_uring_disabled is %" PRIu64
			    ": %s; the disk tier goes on with plain reads and writes",
			    disabled,
			    disabled == 1 ? "only privileged processes may use it"
					  : "nobody may use it");
		doctor_fix_root(d, "sysctl kernel.io_uring_disabled=0");
		return;
	}
	fd = syscall(SYS_io_uring_setup, 4, &params);
	if (fd < 0) {
		doctor_ok(d, "not here: %s; the disk tier goes on with plain reads and writes",
			  strerror(errno));
		return;
	}
	close((int)fd);
	doctor_ok(d, "io_uring works");
}

/* An access list on a new file of the partition's, which is gone at once: what a handoff to another
 * user needs. 0 or -errno. */
static int try_acl(const char *dir)
{
	/* Version 2, then (tag, permissions, id) of owner, user 0, group, mask and others; as the
	 * kernel's posix_acl_xattr. */
	static const uint16_t entries[][2] = {
		{0x01, 4}, {0x02, 4}, {0x04, 0}, {0x10, 4}, {0x20, 0}};
	unsigned char acl[4 + 5 * 8] = {2, 0, 0, 0};
	int r = 0, fd = doctor_try_file(dir, 0);

	if (fd < 0)
		return fd;
	for (size_t i = 0; i < 5; i++) {
		uint32_t id = entries[i][0] == 0x02 ? 0 : UINT32_MAX;

		memcpy(acl + 4 + i * 8, entries[i], 4);
		memcpy(acl + 8 + i * 8, &id, 4);
	}
	if (fsetxattr(fd, "system.posix_acl_access", acl, sizeof(acl), 0) < 0)
		r = -errno;
	close(fd);
	return r;
}

static void check_acl(struct doctor *d)
{
	int r;

	if (!d->exists || !d->writable) {
		doctor_ok(d, "not tried: nothing can be written to %s", d->path);
		return;
	}
	r = try_acl(d->dir);
	if (r == 0) {
		doctor_ok(d, "POSIX access lists work: handoffs between users can");
		return;
	}
	doctor_warn(d, "a file here takes no access list (%s): no handoffs between users",
		    strerror(-r));
	if (d->tmpfs)
		doctor_fix(d, "# needs a kernel with CONFIG_TMPFS_POSIX_ACL=y");
	else
		doctor_fix_root(d, "mount -o remount,acl %s",
				shellword(d->mount ? d->mount->point : d->dir));
}

/* Whether this kernel's tmpfs knows usrquota: asked of a file system that is never mounted. Needs
 * root. */
static void check_tmpfs_quota(struct doctor *d)
{
	char value[8];
	long fd;

	if (d->mount && (mountinfo_option(d->mount->super, "usrquota", value, sizeof(value)) ||
			 mountinfo_option(d->mount->super, "quota", value, sizeof(value)))) {
		doctor_ok(d, "the kernel's own user quotas are on for this mount");
		return;
	}
	fd = syscall(SYS_fsopen, "tmpfs", FSOPEN_CLOEXEC);
	if (fd < 0) { /* nothing depends on it */
		doctor_ok(d, "off for this mount; whether this kernel has them, root can ask");
		return;
	}
	if (syscall(SYS_fsconfig, (int)fd, FSCONFIG_SET_FLAG, "usrquota", NULL, 0) == 0)
		doctor_ok(d, "this kernel's tmpfs knows usrquota: with it, users' limits hold also "
			     "for other programs' files");
	else
		doctor_ok(d, "this kernel's tmpfs has no quotas (6.6 or later may): only the "
			     "daemon's limits hold");
	close((int)fd);
}

static const struct doctor_check checks[] = {
	{"daemon", check_daemon},
	{"io-uring", check_io_uring},
	{"access-lists", check_acl},
	{"tmpfs-quota", check_tmpfs_quota},
	{NULL, NULL},
};

/* ---- the command ----------------------------------------------------------------------------- */

/* Prints text in lines of at most width characters, all but the first indented. */
static void print_wrapped(const char *text, size_t indent, size_t width)
{
	while (strlen(text) > width) {
		size_t cut = width;
		while (cut && text[cut] != ' ')
			cut--;
		if (!cut)
			break; /* one long word, such as a path */
		printf("%.*s\n%*s", (int)cut, text, (int)indent, "");
		text += cut + 1;
	}
	puts(text);
}

static void print_text(const struct admin *a, const struct json_object *o)
{
	const size_t indent = 26;
	struct winsize w;
	size_t width = SIZE_MAX;

	if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 &&
	    w.ws_col > indent + 30)
		width = w.ws_col - indent;
	for (size_t i = 0; i < jsonin_count(o, "findings"); i++) {
		const struct json_object *f = jsonin_at(o, "findings", i);
		const char *level = jsonin_text(f, "level"), *fix = jsonin_text(f, "fix");
		const char *color = strcmp(level, "ok") == 0     ? "\033[32m"
				    : strcmp(level, "warn") == 0 ? "\033[33m"
								 : "\033[31;1m";

		printf("%s%-6s%s%-20s", a->color ? color : "", level, a->color ? "\033[0m" : "",
		       jsonin_text(f, "check"));
		/* it may hold names of other people's making */
		const char *text = jsonin_text(f, "found");
		_free_ char *found = figure_escaped(text, strlen(text));
		print_wrapped(found, indent, width);
		if (*fix) /* never wrapped: it is there to be copied */
			printf("%*s$ %s\n", (int)indent, "", fix);
	}
	putchar('\n');
	figure_print(o, false, "{partition}: {n_ok} ok, {n_warn} warnings, {n_fail} failed\n");
}

int cmd_doctor(struct admin *a, int argc, char **argv)
{
	static struct doctor d;
	char path[PATH_MAX];
	struct json_object *o;

	OPTIONS_PARSE(
		a, argc, argv, "doctor",
		"Checks the partition's file system, the host's limits and settings, and what the "
		"kernel can do, and says for each thing that is wrong which command mends it. "
		"Works before there is a partition, too.\v"
		"Exit status 1 if anything failed; warnings are not failures. Changes nothing.");
	opening_path(a, path);
	doctor_init(&d, a, path);
	run(&d, doctor_of_mount);
	run(&d, doctor_of_host);
	doctor_check_kernel(&d);
	run(&d, checks);
	doctor_check_tier(&d);
	o = jsonmake_new();
	jsonmake_prose(o, "partition", path);
	jsonmake_flag(o, "initialised", d.p != NULL);
	jsonmake_child(o, "findings", d.findings);
	jsonmake_u64(o, "n_ok", d.counts[DOCTOR_OK]);
	jsonmake_u64(o, "n_warn", d.counts[DOCTOR_WARN]);
	jsonmake_u64(o, "n_fail", d.counts[DOCTOR_FAIL]);
	json_show(a, o, print_text);
	mountinfo_deinit(&d.mounts);
	memsource_deinit(&d.memory);
	shmstore_partition_unref(d.p);
	return d.counts[DOCTOR_FAIL] ? ADMIN_FAILED : ADMIN_OK;
}
