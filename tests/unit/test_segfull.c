/* SPDX-License-Identifier: Apache-2.0 */
/* Segments on a partition that is full: an error wherever they would grow, and no signal. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include "scratch.h"
#include "segown.h"
#include "segslot.h"

#define NOW UINT64_C(1000000)

static const uint8_t owners[16] = "the owner's one";

static void end(struct shms_segown *o, int dir)
{
	shms_segfile_leave(&o->file, dir, NOW);
	shms_segown_deinit(o);
	close(dir);
}

/* The file "all" has what is left of the file system. */
static void take_all(int root)
{
	int fd = openat(root, "all", O_CREAT | O_RDWR | O_CLOEXEC, 0600);
	struct statvfs v;

	ENSURE(fd >= 0 && fstatvfs(root, &v) == 0);
	ENSURE(fallocate(fd, 0, 0, (off_t)(v.f_bavail * v.f_frsize)) == 0);
	close(fd);
}

/* Extents are taken far ahead, so that small objects meet a full partition where
 * the next slot would be cut. */
Test(segfull, full_partition_ends_slots_before_extents)
{
	const char *path = scratch_second_mount("small");
	struct iovec iov = {(char[]){"little"}, 6};
	struct shms_segobject what = {"key", 3, NULL, 0, &iov, 1, 0, NULL};
	struct shms_segment_shape shape;
	uint32_t slot, generation, n = 0;
	struct shms_segown o;
	bool full = false;
	int root, r;

	if (!path)
		cr_skip_test("a mount of its own is needed");
	root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cr_assert_geq(root, 0);
	cr_assert_eq(shms_segment_shape(1 << 20, 32, 64 << 20, &shape), 0);
	cr_assert_eq(shms_segown_create(root, &shape, owners, false, false, &o), 0);
	cr_assert_eq(shms_segown_put(&o, &what, NOW, &slot, &generation, &full), 0);
	take_all(root);
	while ((r = shms_segown_put(&o, &what, NOW, &slot, &generation, &full)) == 0)
		n++;
	cr_assert(r == -ENOSPC && !full, "%s after %u", strerror(-r), n);
	cr_assert_gt(n, 100);
	cr_assert_gt(shape.slots_off +
			     (o.alloc.n_born + UINT64_C(1)) * shms_segslot_size(shape.n_words),
		     o.slots_end);
	unlinkat(root, "all", 0);
	cr_assert_eq(shms_segown_put(&o, &what, NOW, &slot, &generation, &full), 0);
	end(&o, root);
}

Test(segfull, full_partition_is_an_error_and_no_signal)
{
	static const size_t sizes[] = {100, 3000, 60000, 70000, 300000};
	int root, dir;
	uint8_t *buffer = malloc(300000);

	const char *path = scratch_second_mount("small");

	if (!path)
		cr_skip_test("a mount of its own is needed");
	root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cr_assert_geq(root, 0);
	for (size_t k = 0; k < 5; k++) {
		struct iovec iov = {buffer, sizes[k]};
		struct shms_segobject what = {"key", 3, NULL, 0, &iov, 1, 0, NULL};
		struct shms_segment_shape shape;
		uint32_t slot, generation;
		struct shms_segown o;
		struct statvfs v;
		bool full = false;
		uint32_t n = 0;
		int r;

		dir = dup(root);
		cr_assert_eq(fstatvfs(root, &v), 0);
		cr_assert_eq(shms_segment_shape(1 << 20, 32,
						(v.f_bavail * v.f_frsize + (128 << 20)) & ~4095ul,
						&shape),
			     0);
		r = shms_segown_create(dir, &shape, owners, false, false, &o);
		cr_assert_eq(r, 0);
		while ((r = shms_segown_put(&o, &what, NOW, &slot, &generation, &full)) == 0)
			n++;
		cr_assert(r == -ENOSPC && !full && n > 10, "%s after %u", strerror(-r), n);
		/* And goes on when there is room. */
		for (uint32_t i = 0; i < n; i++) {
			struct shms_segslot s = shms_segslot_at(&o.file.segment, i);

			shms_segslot_drop(&s, 0, SHMS_SEGVIEWS_NONE);
		}
		cr_assert_gt(shms_segown_trim(&o, NOW), 0);
		take_all(root);
		cr_assert_eq(shms_segown_put(&o, &what, NOW, &slot, &generation, &full), -ENOSPC);
		unlinkat(root, "all", 0);
		for (uint32_t i = 0; i < 10; i++)
			cr_assert_eq(shms_segown_put(&o, &what, NOW, &slot, &generation, &full), 0);
		end(&o, dir);
	}
	close(root);
	free(buffer);
}
