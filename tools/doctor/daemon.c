/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor_daemon.c: shmstored, and what it needs of the host beyond what stores need: io_uring for
 * the disk tier, access lists for handoffs between users, quotas of the kernel's own. A host
 * without the daemon is in order: its absence is told with the command that starts it.
 */
#include <errno.h>
#include <inttypes.h>
#include <linux/io_uring.h>
#include <linux/mount.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "asking.h"
#include "doctor.h"
#include "jsonin.h"
#include "message.h"
#include "sysroot.h"

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
};

void doctor_check_daemon(struct doctor *d)
{
	doctor_run(d, checks, sizeof(checks) / sizeof(checks[0]));
}
