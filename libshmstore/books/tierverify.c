/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierverify.c: reads tier files as a promote would, and throws the bytes away.
 *
 * The check is for damage by the disk, so they are read past the page cache where the file system
 * lets us, and dropped from it elsewhere. The rate is kept from the begin of the call: what a slow
 * moment of the disk left over may be caught up.
 *
 * Objects come and go meanwhile. Damage is reported only if the anchor still has another name after
 * that: else nobody will ever ask for this file again.
 */
#include <errno.h>
#include <fcntl.h>
#include <shmstore/inspect.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "alloc.h"
#include "cleanup.h"
#include "codec.h"
#include "detail.h"
#include "inodes.h"
#include "partition.h"
#include "sys.h"
#include "tier.h"
#include "tierformat.h"
#include "tierscan.h"

#define SLICE_NS      100000000ull /* that is slept at once */
#define MISSING_TRIES 5
#define MISSING_NS    10000000
#define SECOND_NS     1000000000ull

struct verifying {
	struct shmstore_partition *p;
	const struct shmstore_tier_verify *what;
	struct shms_tier_config config;
	struct shms_tier *t; /* of the user at hand */
	struct shms_tier_tools *tools;
	unsigned char *bytes, *spare; /* a frame each */
	uint64_t begin_ns;
	uint64_t done, all; /* bytes */
};

static int tell(struct verifying *v, const char *path, int error, const char *reason)
{
	return v->what->fn(
		&(struct shmstore_verify_finding){.size = sizeof(struct shmstore_verify_finding),
						  .path = path,
						  .error = error,
						  .reason = error ? reason : "",
						  .bytes = v->done},
		v->what->arg);
}

static int progress(struct verifying *v)
{
	return v->what->progress && v->what->progress(v->done, v->all > v->done ? v->all : v->done,
						      v->what->arg)
		       ? -ECANCELED
		       : 0;
}

/* Bytes were read: waits until that many may have been. */
static int pace(struct verifying *v, uint64_t bytes)
{
	uint64_t rate = v->what->rate, due, now, left;
	int r;

	v->done += bytes;
	r = progress(v);
	if (r < 0 || !rate)
		return r;
	due = v->begin_ns + v->done / rate * SECOND_NS +
	      (uint64_t)((double)(v->done % rate) / (double)rate * 1e9);
	for (now = shms_now_mono_ns(); r == 0 && now < due; now = shms_now_mono_ns()) {
		left = due - now < SLICE_NS ? due - now : SLICE_NS;
		nanosleep(&(struct timespec){.tv_nsec = (long)left}, NULL);
		r = progress(v);
	}
	return r;
}

/* ---- one file -------------------------------------------------------------------------------- */

/* 0; -ECANCELED, -ENOMEM; else what is wrong with the frame, with its reason. */
static int check_frame(struct verifying *v, int fd, struct shms_tier_frame *f, char reason[128])
{
	struct shms_tier_work w = {
		.object_fd = -1, .frame = f, .bytes = v->bytes, .spare = v->spare};
	uint64_t size = shms_tier_pad(f->stored);
	ssize_t n = shms_pread_all(fd, v->bytes, size, f->offset);
	int r;

	if (n < 0) {
		snprintf(reason, 128, "cannot be read: %s", strerror((int)-n));
		return shms_error((int)n);
	}
	r = pace(v, (uint64_t)n);
	if (r < 0)
		return r;
	if ((uint64_t)n < size) {
		snprintf(reason, 128, "is cut short");
		return -EBADMSG;
	}
	shms_tier_unpack(&w, v->tools);
	if (w.error)
		snprintf(reason, 128, "%s", w.what);
	return w.error;
}

static int check_frames(struct verifying *v, int fd, struct shms_tier_header *h,
			char ret_reason[160])
{
	char reason[128];
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < h->sb->n_frames; i++) {
		r = check_frame(v, fd, &h->frames[i], reason);
		if (r < 0)
			snprintf(ret_reason, 160, "frame %u %s", i, reason);
	}
	return r;
}

/* Does anybody still name what the anchor is of? */
static bool is_named(const struct verifying *v, uint64_t id)
{
	char name[SHMS_TIER_NAME];
	struct shms_stub stub;

	shms_tier_anchor_name(id, name);
	return shms_stub_read(v->t->dir_fd, name, &stub, NULL) == 0 && stub.n_names > 1;
}

/* Is it a clean copy only, whose object is in memory? 1, 0, -errno. */
static int in_memory(struct verifying *v, const struct shms_stub *stub)
{
	struct shms_inodes *clean = shms_inodes_new();
	int r = clean ? shms_tierscan_clean(v->p, clean) : -ENOMEM;

	if (r == 0)
		r = shms_inodes_find(clean, stub->inode) != NULL;
	shms_inodes_free(clean);
	return r;
}

/* Is the file missing? An anchor comes a moment before its file, so it is
 * looked for more than once. */
static bool is_missing(const struct verifying *v, uint64_t id)
{
	char name[SHMS_TIER_NAME];

	shms_tier_file_name(id, name);
	for (int i = 0; v->t->files_fd >= 0 && i < MISSING_TRIES; i++) {
		if (shms_lookup(v->t->files_fd, name) == 0 || errno != ENOENT)
			return false;
		nanosleep(&(struct timespec){.tv_nsec = MISSING_NS}, NULL);
	}
	return true;
}

static int check_file(struct verifying *v, const struct shms_stub *stub, const char *path)
{
	struct shms_tier_header h;
	char reason[160] = "";
	const char *detail;
	_fd_ int fd = -1;
	int r;

	if (is_missing(v, stub->id)) {
		r = is_named(v, stub->id) ? in_memory(v, stub) : 1;
		/* Of a clean copy nothing is lost, and gc puts it right. */
		return r < 0 ? r : r > 0 ? 0 : tell(v, path, -EBADMSG, "the tier file is missing");
	}
	r = shms_tier_file_open(v->t, stub, &fd, &h);
	if (r < 0) {
		/* "<path>: <reason>" */
		detail = shmstore_error_detail();
		if (strncmp(detail, path, strlen(path)) == 0 &&
		    strncmp(detail + strlen(path), ": ", 2) == 0)
			detail += strlen(path) + 2;
		snprintf(reason, sizeof(reason), "%s", *detail ? detail : shmstore_strerror(r));
		shms_detail_clear();
	} else {
		r = pace(v, h.sb->header_size);
		if (r == 0)
			r = check_frames(v, fd, &h, reason);
		if (!(fcntl(fd, F_GETFL) & O_DIRECT))
			posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		shms_tier_header_deinit(&h);
	}
	if (r == -ENOMEM || r == -EMFILE || r == -ECANCELED)
		return r;
	return r < 0 && !is_named(v, stub->id) ? 0 : tell(v, path, r, reason);
}

/* ---- one user -------------------------------------------------------------------------------- */

static int check_anchors(struct verifying *v)
{
	_names_ struct shms_names d = shms_names(v->t->dir_fd, ".");
	_free_ char *path = NULL;
	struct shms_stub stub;
	uint64_t id;

	d.error = shms_error(d.error);
	while (shms_names_next(&d)) {
		if (shms_tier_parse_name(d.name, "stub", &id) < 0 ||
		    shms_stub_read(v->t->dir_fd, d.name, &stub, NULL) < 0 || stub.n_names <= 1)
			continue;
		free(path);
		path = shms_printed("%s/%016llx", v->t->files_path, (unsigned long long)id);
		if (!path)
			return -ENOMEM;
		d.error = stub.id == id
				  ? check_file(v, &stub, path)
				  : tell(v, path, -EBADMSG, "its anchor is of another tier file");
	}
	return d.error;
}

static int on_user(struct shms_tier *user, void *arg)
{
	struct verifying *v = arg;
	_free_ char *path =
		shms_printed("%s/%s/%u", v->config.path, v->p->uuid, (unsigned)user->uid);

	if (!path)
		return -ENOMEM;
	if (user->closed)
		return tell(v, path, -EPERM, "another user's: it may not be looked into");
	if (user->dir_fd < 0)
		return 0;
	user->files_path = path;
	user->direct = true;
	v->t = user;
	return check_anchors(v);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static int add_size(const struct shms_tierscan_file *f, void *arg)
{
	*(uint64_t *)arg += f->what == SHMS_TIERSCAN_ORPHAN ? 0 : (uint64_t)f->st->st_size;
	return 0;
}

static int count_all(struct verifying *v)
{
	struct shms_inodes *none = shms_inodes_new();
	struct shms_tierscan scan = {.clean = none, .file = add_size, .arg = &v->all};
	int r = none ? shms_tierscan_run(&scan, v->p, &v->config) : -ENOMEM;

	shms_inodes_free(none);
	return r;
}

static int run(struct verifying *v)
{
	uint64_t n_unreadable = 0;
	_fd_ int root = shms_tierscan_root(v->p, &v->config);
	int r;

	if (root < 0)
		return shms_detail(shms_error(root), v->config.path,
				   "the tier's directory in %s cannot be used: %s; is its file "
				   "system mounted?",
				   v->config.path, strerror(-root));
	v->tools = shms_tier_tools_new();
	v->bytes = aligned_alloc(SHMS_TIER_ALIGN, shms_tier_pad(SHMS_TIER_FRAME));
	v->spare = aligned_alloc(SHMS_TIER_ALIGN, shms_tier_pad(SHMS_TIER_FRAME));
	r = v->tools && v->bytes && v->spare ? count_all(v) : -ENOMEM;
	v->begin_ns = shms_now_mono_ns();
	if (r == 0)
		r = shms_tierscan_users(v->p, root, on_user, v, &n_unreadable);
	shms_tier_tools_free(v->tools);
	free(v->bytes);
	free(v->spare);
	return r;
}

int shmstore_tier_verify(struct shmstore_partition *p, const struct shmstore_tier_verify *what)
{
	_free_ struct verifying *v = NULL;
	int r;

	if (!p || !what || what->size < sizeof(*what) || !what->fn)
		return !p || !what ? shms_detail_null(!p ? "p" : "what")
		       : !what->fn ? shms_detail_null("what.fn")
				   : shms_detail(-EINVAL, NULL,
						 "what.size is %zu, less than this structure's",
						 what->size);
	v = calloc(1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	v->p = p;
	v->what = what;
	r = shms_tier_config_read(p, &v->config);
	return r < 0 ? r : run(v);
}
