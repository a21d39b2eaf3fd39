/* SPDX-License-Identifier: Apache-2.0 */
/*
 * With fs.protected_symlinks, which every real host sets, the kernel says EACCES of another user's
 * symlink in a directory that all may write to. One user stopped all handoffs between users by a
 * symlink in the place of inbox/, and root's surveys called what they had seen closed to them.
 * tests/run sets it where it may; without it the answers are the same.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <shmstore/shmstore.h>
#include <shmstore/tier.h>
#include <string.h>
#include <unistd.h>

#include "beneath.h"
#include "brokerscene.h"
#include "sys.h"
#include "wire.h"

TestSuite(sticky_symlink, .init = scene_begin, .fini = scene_end);

static int plant(const char *name)
{
	return symlink("/tmp", scene_below(name));
}

Test(sticky_symlink, is_a_symlink_for_all_who_look)
{
	static const char *const names[] = {"stores/x", "peers/x", "x"};

	for (size_t i = 0; i < 3; i++) {
		cr_assert_eq(scene_as(THIRD, plant, names[i]), 0);
		cr_assert_eq(
			shms_open_beneath(scene_partition_fd, names[i], O_RDONLY | O_DIRECTORY),
			-ELOOP);
		cr_assert_eq(beneath_open(scene_partition_fd, names[i], O_RDONLY), -ELOOP);
	}
	cr_assert_eq(shms_open_beneath(scene_partition_fd, "stores/none", O_RDONLY), -ENOENT);
}

static int look(const char *path)
{
	struct shmstore_partition *p;
	int r = shmstore_partition_open(path, 0, &p);

	if (r == 0)
		shmstore_partition_unref(p);
	else
		ENSURE(r == -EPERM && strstr(shmstore_error_detail(), "symlink of user 60003"));
	return r == 0 ? 0 : EPERM;
}

static int plant_partition(const char *name)
{
	return symlink(scene_path, scene_below(name));
}

Test(sticky_symlink, to_a_partition_is_named)
{
	int protected = 0;
	FILE *f = fopen("/proc/sys/fs/protected_symlinks", "re");

	cr_assert(f && fscanf(f, "%d", &protected) == 1);
	fclose(f);
	cr_assert_eq(scene_as(THIRD, plant_partition, "link"), 0);
	cr_assert_eq(scene_as(DONOR, look, scene_below("link")), protected ? EPERM : 0);
}
