/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_init.c: "shmstore-admin init": makes a directory a partition; with --size or --huge it first
 * gives it a tmpfs of its own. Running it again changes nothing but the size. With --owner the
 * partition is made with that user's rights, so that everything in it is that user's.
 *
 * Only root may mount; anybody else is told the command. Nothing is ever mounted over a directory
 * that holds something, because it would vanish from sight. A remount changes only what is named:
 * tmpfs keeps its other options, the flags (nosuid, ...) have to be given again.
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <linux/magic.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "admin.h"
#include "cleanup.h"
#include "fields.h"
#include "jsonin.h"
#include "opening.h"
#include "options.h"
#include "sysroot.h"

#define OPTIONS_SIZE 256u

struct ramdisk {
	const char *path;
	uint64_t size;    /* bytes; 0 = as it is, or half of the RAM */
	const char *huge; /* the mount option; NULL = as it is, or within_size */
	const char *mpol; /* its NUMA policy, as the mount option; NULL = as it is, or none */
	uid_t uid;        /* of the root directory */
	gid_t gid;
	bool shared; /* mode 1777, else 0700 */
};

enum ramdisk_done {
	RAMDISK_MOUNTED = 1,
	RAMDISK_RESIZED = 2
};

/* Whether the directory holds nothing. A missing one does, and one that we may not look into:
 * the kernel will say more. */
static bool is_empty(const char *path)
{
	_dir_ DIR *d = opendir(path);
	const struct dirent *e;
	bool empty = true;

	if (!d)
		return errno == ENOENT || errno == EACCES;
	while (empty && (e = readdir(d)))
		empty = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0;
	return empty;
}

static int explain_not_root(const struct ramdisk *disk)
{
	char size[64] = "";

	if (disk->size)
		snprintf(size, sizeof(size), " --size %" PRIu64, disk->size);
	message_fail(disk->path, "only root may mount a tmpfs or resize one");
	message_hint("run: sudo " ADMIN_NAME " -p %s init%s%s%s%s --owner %u",
		     shellword(disk->path), size, disk->huge ? " --huge " : "",
		     disk->huge ? disk->huge : "", disk->shared ? " --shared" : "", geteuid());
	return -1;
}

static int explain_not_empty(const char *path, const struct shms_mountline *m)
{
	if (opening_marker_version(path)) {
		message_fail(path,
			     "is a partition already, on the file system mounted at %s: a mount "
			     "would hide it",
			     m ? m->point : "?");
		message_hint("make a new one: name a directory that is empty or does not exist");
	} else {
		message_fail(path, "is not empty: a mount would hide what is in it");
		message_hint("name an empty or a new directory");
	}
	return -1;
}

/* The flags of the mount that is there, as mount(2) wants them again. */
static unsigned long mount_flags(const char *path)
{
	static const struct {
		unsigned long statvfs, mount;
	} flags[] = {
		{ST_RDONLY, MS_RDONLY},     {ST_NOSUID, MS_NOSUID},
		{ST_NODEV, MS_NODEV},       {ST_NOEXEC, MS_NOEXEC},
		{ST_NOATIME, MS_NOATIME},   {ST_NODIRATIME, MS_NODIRATIME},
		{ST_RELATIME, MS_RELATIME},
	};
	unsigned long found = 0;
	struct statvfs fs;

	if (statvfs(path, &fs) < 0)
		return 0;
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
		found |= fs.f_flag & flags[i].statvfs ? flags[i].mount : 0;
	return found;
}

/* The options of a new tmpfs and of a resized one, each behind a comma. */
static void format_options(const struct ramdisk *disk, const char *huge, char ret[OPTIONS_SIZE])
{
	char size[64] = "";

	if (disk->size)
		snprintf(size, sizeof(size), ",size=%" PRIu64 ",nr_inodes=%" PRIu64, disk->size,
			 mountinfo_inodes(disk->size));
	snprintf(ret, OPTIONS_SIZE, "%s%s%s%s%s", size, huge ? ",huge=" : "", huge ? huge : "",
		 disk->mpol ? ",mpol=" : "", disk->mpol ? disk->mpol : "");
}

static int explain_mount(const struct ramdisk *disk, const char *data, int error)
{
	message_fail(disk->path, "the kernel refuses a tmpfs with the options %s: %s", data,
		     strerror(error));
	if (error == EINVAL && disk->huge)
		message_hint("huge is one of never, within_size, advise, always, and needs a "
			     "kernel with huge pages");
	if (error == EINVAL && disk->size)
		message_hint("a size below what is in use cannot be: %s asked for",
			     human_size(disk->size));
	if (error == EPERM)
		message_hint("in a container, the host's root must mount it");
	return -1;
}

static int resize(const struct ramdisk *disk)
{
	char options[OPTIONS_SIZE], *data = options;

	format_options(disk, disk->huge, options);
	data += *data == ',';
	if (mount("shmstore", disk->path, NULL, MS_REMOUNT | mount_flags(disk->path), data) < 0)
		return explain_mount(disk, data, errno);
	return RAMDISK_RESIZED;
}

static int make(const struct ramdisk *disk)
{
	char options[OPTIONS_SIZE], data[64 + OPTIONS_SIZE];
	bool made = mkdir(disk->path, 0700) == 0;

	if (!made && errno != EEXIST) {
		message_fail(disk->path, "the directory cannot be made: %s", strerror(errno));
		if (errno == ENOENT)
			message_hint("its parent is missing: mkdir -p \"$(dirname %s)\"",
				     shellword(disk->path));
		return -1;
	}
	format_options(disk, disk->huge ? disk->huge : "within_size", options);
	snprintf(data, sizeof(data), "mode=%s,uid=%u,gid=%u%s", disk->shared ? "1777" : "0700",
		 disk->uid, disk->gid, options);
	if (mount("shmstore", disk->path, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, data) < 0) {
		int error = errno;
		if (made)
			rmdir(disk->path);
		return explain_mount(disk, data, error);
	}
	return RAMDISK_MOUNTED;
}

/*
 * Mounts a tmpfs at path (the directory is made where it is missing), or, where path is a tmpfs's
 * mount point already, gives that one the new size and huge option.
 * Returns RAMDISK_MOUNTED or RAMDISK_RESIZED, or -1 once everything is said.
 */
static int ramdisk_make(const struct admin *a, const struct ramdisk *disk)
{
	_mounts_ struct mountinfo_table mounts = {0};
	_free_ char *canonical = realpath(disk->path, NULL);

	mountinfo_read(a, &mounts);
	const struct shms_mountline *m = canonical ? mountinfo_find(&mounts, canonical) : NULL;
	bool is_point = m && strcmp(m->point, canonical) == 0;
	if (is_point && strcmp(m->type, "tmpfs") != 0) {
		message_fail(disk->path, "is the mount point of another file system (%s)", m->type);
		message_hint("name another directory");
		return -1;
	}
	if (!is_point && !is_empty(disk->path))
		return explain_not_empty(disk->path, m);
	if (geteuid() != 0)
		return explain_not_root(disk);
	return is_point ? resize(disk) : make(disk);
}

/* ---- the partition --------------------------------------------------------------------------- */

#define NO_OWNER ((uid_t)-1)

struct init {
	struct ramdisk disk;
	unsigned flags;   /* SHMSTORE_ALLOW_DISK, SHMSTORE_SHARED */
	const char *size; /* as typed; NULL: none was */
	size_t huge;      /* of huge_words */
	uid_t owner;      /* NO_OWNER: us */
	int mounted;      /* enum ramdisk_done; 0 = nothing was */
	bool created;
};

static uint64_t ram_size(void)
{
	struct sysinfo s;

	return sysinfo(&s) == 0 ? (uint64_t)s.totalram * s.mem_unit : 0;
}

static const char *const huge_words[] = {"within_size", "never", "advise", "always"};
#define N_HUGE (sizeof(huge_words) / sizeof(huge_words[0]))

static void check(const struct argp_state *state, const struct command_line *line)
{
	struct init *init = line->own;
	struct ramdisk *disk = &init->disk;
	const struct passwd *pw = init->owner != NO_OWNER ? getpwuid(init->owner) : NULL;

	if (init->size && (!human_parse(init->size, ram_size(), &disk->size) || disk->size < 65536))
		options_usage(state, "--size %s: is no size of at least 64K, such as 8G or 50%%",
			      init->size);
	disk->size = (disk->size + 4095) & ~(uint64_t)4095;
	disk->huge = init->huge < N_HUGE ? huge_words[init->huge] : NULL;
	disk->shared = init->flags & SHMSTORE_SHARED;
	if (init->owner != NO_OWNER) {
		disk->uid = init->owner;
		disk->gid = pw ? pw->pw_gid : (gid_t)disk->uid;
	}
	if ((init->flags & SHMSTORE_ALLOW_DISK) && (disk->size || disk->huge || disk->mpol))
		options_usage(state, "--allow-disk does not go with --size, --huge or --mpol");
}

/* The library cannot make the directory: no parent, or one that is not ours. */
static void explain_no_directory(const char *path)
{
	char parent[PATH_MAX];
	struct stat st;

	snprintf(parent, sizeof(parent), "%s", path);
	const char *dir = dirname(parent);
	if (stat(dir, &st) < 0) {
		message_fail(path, "the directory cannot be made: %s: %s", dir, strerror(errno));
		message_hint("to make it: mkdir -p %s", shellword(dir));
	} else {
		message_fail(path, "the directory cannot be made: you may not write to %s", dir);
		message_hint("as root: mkdir -m 0700 %s && chown %u %s", shellword(path), geteuid(),
			     shellword(path));
	}
}

/* Opens the partition, making it where there is none. The one that was there counts as not created.
 */
static int open_or_create(const struct admin *a, struct init *init, struct shmstore_partition **ret)
{
	const char *path = init->disk.path;
	int r = shmstore_partition_open(path, opening_flags(a), ret);
	struct statfs fs;

	if (r == 0 && !(init->flags & SHMSTORE_ALLOW_DISK) &&
	    (statfs(path, &fs) < 0 || fs.f_type != TMPFS_MAGIC)) {
		*ret = shmstore_partition_unref(*ret);
		message_fail(path, "is a partition on a disk file system");
		message_hint("to go on using it: --allow-disk");
		return ADMIN_FAILED;
	}
	/* what is no partition yet: no marker, or a disk without --allow-disk, told apart by trying
	 */
	if (r == -ENOENT || r == -ENOTSUP) {
		r = shmstore_partition_open(path, SHMSTORE_CREATE | opening_flags(a) | init->flags,
					    ret);
		init->created = r == 0;
	}
	if (r == -ENOENT || (r == -EPERM && access(path, F_OK) < 0 && errno == ENOENT)) {
		explain_no_directory(path);
		return ADMIN_FAILED;
	}
	return r < 0 ? opening_explain(a, path, r) : ADMIN_OK;
}

static int create(const struct admin *a, struct init *init, struct shmstore_partition **ret)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();

	if (init->disk.size || init->disk.huge || init->disk.mpol) {
		init->mounted = ramdisk_make(a, &init->disk);
		if (init->mounted < 0)
			return ADMIN_FAILED;
	}
	if (init->owner != NO_OWNER && uid != 0 && init->disk.uid != uid)
		return message_fail("--owner", "only root may make a partition for another user");
	bool other = init->owner != NO_OWNER && uid == 0 && init->disk.uid != 0;
	if (other && (setegid(init->disk.gid) < 0 || seteuid(init->disk.uid) < 0))
		return message_fail("--owner", "%s", strerror(errno));
	int status = open_or_create(a, init, ret);
	if (other && (seteuid(uid) < 0 || setegid(gid) < 0))
		return message_fail("--owner", "%s", strerror(errno));
	if (status != ADMIN_OK && init->mounted == RAMDISK_MOUNTED)
		umount2(init->disk.path, 0);
	return status;
}

static void warn(const struct shmstore_partition_info *info)
{
	uint64_t total = ram_size();

	if (!info->tmpfs) {
		message_say(
			"warning: %s is on a disk file system: slow, and objects outlive a reboot",
			info->path);
	} else if (total && info->bytes_size > total / 2 + total / 64) {
		message_say("warning: %s may grow to %s, more than half of the RAM (%s)",
			    info->path, human_size(info->bytes_size), human_size(total));
		message_hint("a tmpfs larger than RAM and swap can bring the machine to a halt; "
			     "see: " ADMIN_NAME " -p %s doctor",
			     shellword(info->path));
	}
}

static void report(const struct admin *a, const struct init *init,
		   const struct shmstore_partition_info *info)
{
	struct json_object *o = jsonmake_new();

	fields_of(o, info, FIELD_AS(FIELD_PROSE, path, "partition"), SAME(uuid), PLACE("created"),
		  PLACE("mounted"), PLACE("resized"), PROSE(mount), SAME(tmpfs),
		  FIELD(bytes_size, "size"), SAME(huge));
	jsonmake_flag(o, "created", init->created);
	jsonmake_flag(o, "mounted", init->mounted == RAMDISK_MOUNTED);
	jsonmake_flag(o, "resized", init->mounted == RAMDISK_RESIZED);
	json_say(a, o,
		 "{partition}: [created?partition made|is a partition already][mounted?, tmpfs "
		 "mounted][resized?, tmpfs resized][size?, {size:size}][huge?, huge={huge}]\n");
}

int cmd_init(struct admin *a, int argc, char **argv)
{
	typedef struct init OF;
	static const struct options_row options[] = {
		{"size", 's', "SIZE",
		 "give it a tmpfs of its own, or resize it: 8G, 512M, 50% (of the RAM)",
		 OPTIONS_TEXT, offsetof(OF, size)},
		{"huge", 0, "HOW",
		 "the mount's huge pages: within_size (default with --size), never, advise, always",
		 OPTIONS_WORD, offsetof(OF, huge), .words = huge_words, .n_words = N_HUGE},
		{"mpol", 0, "POLICY",
		 "the mount's NUMA policy: interleave, local, prefer:NODE, bind:NODES",
		 OPTIONS_TEXT, offsetof(OF, disk.mpol)},
		{"allow-disk", 0, NULL, "accept a file system that is not a tmpfs", OPTIONS_BITS,
		 offsetof(OF, flags), SHMSTORE_ALLOW_DISK},
		{"shared", 0, NULL, "for several users: mode 1777", OPTIONS_BITS,
		 offsetof(OF, flags), SHMSTORE_SHARED},
		{"owner", 0, "USER", "as root: for that user", OPTIONS_USER, offsetof(OF, owner)},
		{NULL},
	};
	char path[PATH_MAX];
	struct init init = {.disk = {.path = path, .uid = geteuid(), .gid = getegid()},
			    .huge = N_HUGE,
			    .owner = NO_OWNER};
	struct shmstore_partition_info info = {.size = sizeof(info)};
	_partition_ struct shmstore_partition *p = NULL;

	OPTIONS_PARSE(a, argc, argv, "init",
		      "Makes the partition: an empty or missing directory on a tmpfs. With --size "
		      "or --huge, as root, it gets a tmpfs of its own, with huge=within_size "
		      "unless told otherwise; run again, it resizes it.\v"
		      "The directory of a default partition is made in /dev/shm, whose huge pages "
		      "are off: a mount of its own is several times faster.",
		      .options = options, .own = &init, .check = check);
	opening_path(a, path);
	int status = create(a, &init, &p);
	if (status == ADMIN_OK) {
		int r = shmstore_partition_info(p, &info);
		if (r < 0)
			status = message_detail(path, r);
	}
	if (status == ADMIN_OK) {
		report(a, &init, &info);
		fflush(stdout);
		warn(&info);
	}
	return status;
}
