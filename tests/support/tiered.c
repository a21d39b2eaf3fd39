/* SPDX-License-Identifier: Apache-2.0 */
#include "tiered.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "partition.h"
#include "scratch.h"
#include "tier.h"

#define TMPFS_MAGIC 0x01021994

static char disk[TIERED_PATH];

/* A shell that waits for the end of this process (the pipe's other end goes with it) and then
 * removes the directory. Not a child of ours: tests wait for their children. */
static void remove_at_end(const char *path)
{
	int fds[2];
	pid_t pid;

	ENSURE(pipe2(fds, O_CLOEXEC) == 0);
	pid = fork();
	ENSURE(pid >= 0);
	if (pid == 0) {
		if (fork() != 0)
			_exit(0);
		dup2(fds[0], 0);
		dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), 1);
		dup2(1, 2);
		setsid();
		close_range(3, ~0u, 0);
		execl("/bin/sh", "sh", "-c", "read -r line; exec rm -rf -- \"$1\"", "sh", path,
		      (char *)NULL);
		_exit(127);
	}
	ENSURE(waitpid(pid, NULL, 0) == pid);
	close(fds[0]); /* the other end stays open */
}

const char *tiered_disk(void)
{
	const char *base = getenv("SHMSTORE_TEST_DISK");
	char all[TIERED_PATH - 8];
	struct statfs fs;

	if (disk[0])
		return disk;
	if (!base)
		base = "/var/tmp";
	if (statfs(base, &fs) < 0 || fs.f_type == TMPFS_MAGIC)
		return NULL;
	snprintf(all, sizeof(all), "%s/shmstore-test-tier-XXXXXX", base);
	if (!mkdtemp(all))
		return NULL;
	remove_at_end(all);
	/* One deeper: what a test moves away lies beside it, and goes too. */
	snprintf(disk, sizeof(disk), "%s/disk", all);
	ENSURE(mkdir(disk, 0700) == 0);
	return disk;
}

bool tiered_begin(const struct shmstore_tier_config *config)
{
	struct shmstore_tier_config c = SHMSTORE_TIER_CONFIG_INIT;
	struct shmstore_partition *p;
	int r;

	if (!tiered_disk())
		return false;
	if (config)
		c = *config;
	c.path = disk;
	p = scratch_partition();
	r = shmstore_tier_set(p, &c);
	if (r < 0)
		fprintf(stderr, "cannot give the partition a tier: %s %s\n", shmstore_strerror(r),
			shmstore_error_detail());
	ENSURE(r == 0);
	shmstore_partition_unref(p);
	return true;
}

/* ---- what is there --------------------------------------------------------------------------- */

static const char *files_directory(void)
{
	static char path[TIERED_PATH + 128];
	struct shmstore_partition *p = scratch_partition();

	snprintf(path, sizeof(path), "%s/%s/%u", disk, p->uuid, (unsigned)geteuid());
	shmstore_partition_unref(p);
	return path;
}

static const char *part_directory(void)
{
	static char path[TIERED_PATH + 128];

	snprintf(path, sizeof(path), "%s/%s/%u", scratch_partition_path(), SHMS_DIR_TIER,
		 (unsigned)geteuid());
	return path;
}

/* Names in a directory that end so; one that is not there has none. */
static int count_ending(const char *path, const char *end)
{
	DIR *d = opendir(path);
	struct dirent *e;
	int n = 0;

	while (d && (e = readdir(d)) != NULL) {
		size_t size = strlen(e->d_name);

		n += e->d_name[0] != '.' && size >= strlen(end) &&
		     strcmp(e->d_name + size - strlen(end), end) == 0;
	}
	if (d)
		closedir(d);
	return n;
}

int tiered_count_files(void)
{
	return count_ending(files_directory(), "");
}

int tiered_count_anchors(void)
{
	return count_ending(part_directory(), ".stub");
}

int tiered_count_residents(void)
{
	return count_ending(part_directory(), ".object");
}

bool tiered_stub(const char *store, const char *part, const char *key, struct shms_stub *ret)
{
	int fd = open(scratch_store_path(store, part), O_RDONLY | O_DIRECTORY | O_CLOEXEC), r;

	if (fd < 0)
		return false;
	r = shms_stub_read(fd, key, ret, NULL);
	close(fd);
	return r == 0;
}

const char *tiered_file(const char *store, const char *key)
{
	static char path[TIERED_PATH + 256];
	char name[SHMS_TIER_NAME];
	struct shms_stub stub;

	if (!tiered_stub(store, "objects", key, &stub) &&
	    !tiered_stub(store, SHMS_DIR_CLEAN, key, &stub))
		return NULL;
	shms_tier_file_name(stub.id, name);
	snprintf(path, sizeof(path), "%s/%s", files_directory(), name);
	return path;
}

void tiered_damage(const char *store, const char *key, uint64_t offset)
{
	const char *path = tiered_file(store, key);
	unsigned char byte;
	int fd;

	ENSURE(path && chmod(path, 0600) == 0);
	fd = open(path, O_RDWR | O_CLOEXEC);
	ENSURE(fd >= 0 && pread(fd, &byte, 1, (off_t)offset) == 1);
	byte ^= 0xff;
	ENSURE(pwrite(fd, &byte, 1, (off_t)offset) == 1);
	ENSURE(fchmod(fd, 0400) == 0);
	close(fd);
}

void ensure_tier_empty(void)
{
	ENSURE(tiered_count_files() == 0);
	ENSURE(tiered_count_anchors() == 0);
	ENSURE(tiered_count_residents() == 0);
}
