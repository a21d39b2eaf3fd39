/* SPDX-License-Identifier: Apache-2.0 */
/* One frame between an object's file and what is to be stored: the samples may promise what the
 * frame does not keep, and reads may fail. */
#include <criterion/criterion.h>
#include <errno.h>
#include <malloc.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "codec.h"
#include "scratch.h"

#define FRAME ((size_t)SHMS_TIER_FRAME)

static struct shms_tier_tools *tools;
static unsigned char *object, *bytes, *spare;
static int object_fd;

static void begin(void)
{
	mallopt(M_PERTURB, 0x5a); /* what nobody has written is no zero */
	tools = shms_tier_tools_new();
	object = malloc(FRAME);
	bytes = malloc(FRAME);
	spare = malloc(FRAME);
	object_fd = memfd_create("object", MFD_CLOEXEC);
	ENSURE(tools && object && bytes && spare && object_fd >= 0);
}

static void end(void)
{
	shms_tier_tools_free(tools);
	free(object);
	free(bytes);
	free(spare);
	close(object_fd);
}

TestSuite(tierframe, .init = begin, .fini = end);

static void fill_sorted(void)
{
	for (uint64_t i = 0; i < FRAME / 8; i++)
		memcpy(object + i * 8, &(uint64_t){i * i % 1000 + i * 5000}, 8);
}

static struct shms_tier_work pack(struct shms_tier_frame *f, int fd)
{
	struct shms_tier_work w = {
		.object_fd = fd, .frame = f, .level = 1, .bytes = bytes, .spare = spare};

	shms_tier_pack(&w, tools);
	return w;
}

/* The codec that it came to, and that it comes back. */
static uint32_t there_and_back(void)
{
	struct shms_tier_frame f = {.original = FRAME};
	struct shms_tier_work w;
	void *stored = malloc(FRAME);

	ENSURE(stored && pwrite(object_fd, object, FRAME, 0) == (ssize_t)FRAME);
	w = pack(&f, object_fd);
	cr_assert_eq(w.error, 0);
	memcpy(stored, w.at, (size_t)shms_tier_pad(f.stored));
	memset(bytes, 0, FRAME);
	memcpy(bytes, stored, (size_t)shms_tier_pad(f.stored));
	free(stored);
	ENSURE(ftruncate(object_fd, 0) == 0);
	w = (struct shms_tier_work){
		.object_fd = object_fd, .frame = &f, .bytes = bytes, .spare = spare};
	shms_tier_unpack(&w, tools);
	cr_assert_eq(w.error, 0, "%s", w.what);
	cr_assert_eq(pread(object_fd, bytes, FRAME, 0), (ssize_t)FRAME);
	cr_assert(memcmp(bytes, object, FRAME) == 0);
	return f.codec;
}

Test(tierframe, comes_back)
{
	fill_sorted();
	cr_assert_neq(there_and_back(), SHMS_CODEC_RAW);
	memset(object, 'a', FRAME);
	cr_assert_neq(there_and_back(), SHMS_CODEC_RAW);
	pattern_fill(object, FRAME, 1);
	cr_assert_eq(there_and_back(), SHMS_CODEC_RAW);
}

Test(tierframe, what_only_the_samples_promised_is_stored_as_it_is)
{
	/* The samples are the ends of its quarters. */
	for (unsigned text = 0; text < 2; text++) {
		fill_sorted();
		if (text)
			memset(object, 'a', FRAME);
		for (size_t quarter = 0; quarter < 4; quarter++)
			pattern_fill(object + quarter * (FRAME / 4), FRAME / 4 - 32768,
				     quarter + 1);
		cr_assert_eq(there_and_back(), SHMS_CODEC_RAW);
	}
}

Test(tierframe, object_that_cannot_be_read_is_an_error)
{
	struct shms_tier_frame f = {.original = FRAME};
	struct shms_tier_work w = pack(&f, -1);

	cr_assert(w.error < 0 && w.what);
	fill_sorted();
	for (size_t size = 0; size < FRAME; size += FRAME / 8) {
		ENSURE(ftruncate(object_fd, 0) == 0 &&
		       pwrite(object_fd, object, size, 0) == (ssize_t)size);
		w = pack(&f, object_fd);
		cr_assert(w.error == -EIO && w.what, "%zu bytes of the frame: %d", size, w.error);
	}
}
