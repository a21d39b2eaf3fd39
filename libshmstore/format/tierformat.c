/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierformat.c: layout, encoding and validation of a tier file's header. Pure: bytes in private
 * memory in, bytes and verdicts out. A header is one allocation, aligned so that O_DIRECT can read
 * and write it as it is, with some room behind it to gather the frames' hashes in (xxhash's
 * streaming state would be another allocation, that can fail).
 *
 * There is one way to lay out a given object: sizes, table and frames follow each other without a
 * gap. So the parser computes where everything must be and compares, rather than asking whether
 * what it is told is possible; what the header may ask to be allocated is bounded by the file's own
 * size before anything is allocated (a frame takes 4096 bytes of the file and 64 of the header).
 *
 * Rejected: frames at free offsets (holes, overlaps and order would all have to be checked, and
 * bytes between frames would be under no hash); a footer instead of a header (a file cut short
 * could not even say what it was).
 */
#include "tierformat.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <shmstore/shmstore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "hexdigits.h"
#include "sys.h"
#include "xxh3.h"

#define OBJECT_MAX ((uint64_t)INT64_MAX / 2) /* bytes; its tier file's size is an off_t too */
#define HASH_SIZE  (2 * sizeof(uint64_t))
/* a part of the header: the room behind it to gather hashes in */
#define GATHERED   (sizeof(struct shms_tier_frame) / HASH_SIZE)

static int refuse(const char **ret_reason, int error, const char *reason)
{
	if (ret_reason)
		*ret_reason = reason;
	return error;
}

void shms_tier_hash(const void *bytes, size_t size, uint64_t ret_hash[2])
{
	XXH128_hash_t h = XXH3_128bits(bytes, size);

	ret_hash[0] = h.low64;
	ret_hash[1] = h.high64;
}

static uint64_t table_offset(uint32_t key_size)
{
	return (SHMS_TIER_SUPERBLOCK + (uint64_t)key_size + 63) & ~UINT64_C(63);
}

static uint64_t header_bytes(uint32_t key_size, uint32_t n_frames)
{
	return shms_tier_pad(table_offset(key_size) + n_frames * sizeof(struct shms_tier_frame));
}

/* Frames of an object of so many bytes; 0: none, or too many. */
static uint32_t frames_of(uint64_t object_size)
{
	uint64_t n = object_size / SHMS_TIER_FRAME + (object_size % SHMS_TIER_FRAME != 0);

	return object_size <= OBJECT_MAX && n <= UINT32_MAX ? (uint32_t)n : 0;
}

static uint32_t original_size(uint64_t object_size, uint32_t n_frames, uint32_t i)
{
	return i + 1 < n_frames ? SHMS_TIER_FRAME
				: (uint32_t)(object_size - (uint64_t)i * SHMS_TIER_FRAME);
}

static void set_pointers(struct shms_tier_header *h, uint32_t key_size)
{
	h->sb = (struct shms_tier_superblock *)(void *)h->bytes;
	h->key = h->bytes + SHMS_TIER_SUPERBLOCK;
	h->frames = (struct shms_tier_frame *)(void *)(h->bytes + table_offset(key_size));
}

int shms_tier_header_alloc(struct shms_tier_header *h, uint64_t size)
{
	void *bytes;

	*h = (struct shms_tier_header){0};
	if (!size || size % SHMS_TIER_ALIGN || size > OBJECT_MAX)
		return -EINVAL;
	if (posix_memalign(&bytes, SHMS_TIER_ALIGN, (size_t)(size + size / GATHERED)))
		return -ENOMEM;
	memset(bytes, 0, (size_t)size);
	h->bytes = bytes;
	return 0;
}

void shms_tier_header_deinit(struct shms_tier_header *h)
{
	free(h->bytes);
	*h = (struct shms_tier_header){0};
}

int shms_tier_header_init(struct shms_tier_header *h, const struct shms_tier_object *o)
{
	struct shms_tier_superblock *sb;
	uint64_t size;
	uint32_t n;
	int r;

	*h = (struct shms_tier_header){0};
	if (o->key_size > SHMSTORE_KEY_MAX || o->header_size > OBJECT_MAX ||
	    o->buffer_size > OBJECT_MAX)
		return -EINVAL;
	size = o->header_size + o->buffer_size;
	n = frames_of(size);
	if (!n)
		return -EINVAL;
	r = shms_tier_header_alloc(h, header_bytes(o->key_size, n));
	if (r < 0)
		return r;
	set_pointers(h, o->key_size);
	sb = h->sb;
	memcpy(sb->magic, SHMS_TIER_MAGIC, sizeof(sb->magic));
	sb->version = SHMS_TIER_VERSION;
	sb->superblock_size = SHMS_TIER_SUPERBLOCK;
	sb->header_size = header_bytes(o->key_size, n);
	sb->id = o->id;
	sb->generation = o->generation;
	sb->object_size = size;
	sb->object_header = o->header_size;
	sb->object_buffer = o->buffer_size;
	sb->created_ns = (uint64_t)shms_now_real_ns();
	sb->key_size = o->key_size;
	sb->n_frames = n;
	sb->frame_size = SHMS_TIER_FRAME;
	sb->level = o->level;
	if (o->key_size)
		memcpy(h->bytes + SHMS_TIER_SUPERBLOCK, o->key, o->key_size);
	for (uint32_t i = 0; i < n; i++)
		h->frames[i].original = original_size(size, n, i);
	return 0;
}

/* One field of all frames, gathered behind the header, and hashed. */
static void hash_of_hashes(const struct shms_tier_header *h, size_t field, uint64_t ret_hash[2])
{
	unsigned char *gathered = h->bytes + h->sb->header_size;

	for (uint32_t i = 0; i < h->sb->n_frames; i++)
		memcpy(gathered + (size_t)i * HASH_SIZE,
		       (const unsigned char *)&h->frames[i] + field, HASH_SIZE);
	shms_tier_hash(gathered, (size_t)h->sb->n_frames * HASH_SIZE, ret_hash);
}

static void hash_frames(const struct shms_tier_header *h, uint64_t ret_stored[2],
			uint64_t ret_object[2])
{
	hash_of_hashes(h, offsetof(struct shms_tier_frame, stored_hash), ret_stored);
	hash_of_hashes(h, offsetof(struct shms_tier_frame, object_hash), ret_object);
}

/* Of the whole header with its own field zero, which it is again afterwards. */
static void hash_header(struct shms_tier_header *h, uint64_t size, uint64_t ret_hash[2])
{
	memset(h->sb->header_hash, 0, sizeof(h->sb->header_hash));
	shms_tier_hash(h->bytes, (size_t)size, ret_hash);
}

void shms_tier_header_finish(struct shms_tier_header *h)
{
	struct shms_tier_superblock *sb = h->sb;
	const struct shms_tier_frame *last = &h->frames[sb->n_frames - 1];
	uint64_t hash[2];

	sb->flags = SHMS_TIER_RAW;
	for (uint32_t i = 0; i < sb->n_frames; i++)
		if (h->frames[i].codec != SHMS_CODEC_RAW)
			sb->flags = 0;
	sb->file_size = last->offset + shms_tier_pad(last->stored);
	hash_frames(h, sb->stored_hash, sb->object_hash);
	hash_header(h, sb->header_size, hash);
	memcpy(sb->header_hash, hash, sizeof(hash));
}

int shms_tier_header_need(const void *first, size_t size, uint64_t file_size, uint64_t *ret_need)
{
	struct shms_tier_superblock sb;

	if (size < sizeof(sb) || file_size < size)
		return -EBADMSG;
	memcpy(&sb, first, sizeof(sb));
	if (memcmp(sb.magic, SHMS_TIER_MAGIC, sizeof(sb.magic)) != 0)
		return -EBADMSG;
	if (sb.version != SHMS_TIER_VERSION || sb.incompat_flags)
		return -ENOTSUP;
	if (sb.superblock_size != SHMS_TIER_SUPERBLOCK || sb.key_size > SHMSTORE_KEY_MAX ||
	    sb.frame_size != SHMS_TIER_FRAME || !sb.n_frames ||
	    sb.n_frames != frames_of(sb.object_size))
		return -EBADMSG;
	if (sb.header_size != header_bytes(sb.key_size, sb.n_frames) || sb.file_size != file_size ||
	    file_size < sb.header_size + (uint64_t)sb.n_frames * SHMS_TIER_ALIGN)
		return -EBADMSG;
	*ret_need = sb.header_size;
	return 0;
}

/* offset: where it must begin. */
static int check_frame(const struct shms_tier_frame *f, uint64_t offset, uint32_t original)
{
	if (f->offset != offset || f->original != original || f->reserved || f->reserved1)
		return -EBADMSG;
	if (f->codec >= SHMS_CODEC_N)
		return -ENOTSUP;
	if (f->codec == SHMS_CODEC_RAW)
		return f->stored == original ? 0 : -EBADMSG;
	return f->stored && f->stored < original ? 0 : -EBADMSG;
}

static int check_frames(const struct shms_tier_header *h, const char **ret_reason)
{
	const struct shms_tier_superblock *sb = h->sb;
	uint64_t offset = sb->header_size;
	bool raw = true;

	for (uint32_t i = 0; i < sb->n_frames; i++) {
		const struct shms_tier_frame *f = &h->frames[i];
		int r = check_frame(f, offset, original_size(sb->object_size, sb->n_frames, i));

		if (r < 0)
			return refuse(ret_reason, r,
				      r == -ENOTSUP ? "a frame is stored in a way that this "
						      "version does not know"
						    : "a frame is not where or what it must be");
		raw = raw && f->codec == SHMS_CODEC_RAW;
		offset += shms_tier_pad(f->stored);
	}
	if (offset != sb->file_size)
		return refuse(ret_reason, -EBADMSG, "the frames do not end where the file does");
	if (sb->flags != (raw ? SHMS_TIER_RAW : 0))
		return refuse(ret_reason, -EBADMSG, "the flags are not those of its frames");
	return 0;
}

int shms_tier_header_parse(struct shms_tier_header *h, uint64_t size, uint64_t file_size,
			   const char **ret_reason)
{
	struct shms_tier_superblock *sb = (struct shms_tier_superblock *)(void *)h->bytes;
	uint64_t need, said[2], is[2], stored[2], object[2];
	int r;

	r = shms_tier_header_need(h->bytes, (size_t)size, file_size, &need);
	if (r == -ENOTSUP)
		return refuse(ret_reason, r,
			      "the tier file is of a version that this one does not know");
	if (r < 0)
		return refuse(ret_reason, r,
			      "this is no whole tier file: its first bytes or its size are wrong");
	if (need > size)
		return refuse(ret_reason, -EBADMSG, "the header is cut short");
	set_pointers(h, sb->key_size);
	memcpy(said, sb->header_hash, sizeof(said));
	hash_header(h, need, is);
	memcpy(sb->header_hash, said, sizeof(said));
	if (memcmp(said, is, sizeof(is)) != 0)
		return refuse(ret_reason, -EBADMSG, "the header's checksum is wrong");
	if (sb->object_header > sb->object_size ||
	    sb->object_buffer != sb->object_size - sb->object_header)
		return refuse(ret_reason, -EBADMSG, "the object's sizes do not add up");
	r = check_frames(h, ret_reason);
	if (r < 0)
		return r;
	hash_frames(h, stored, object);
	if (memcmp(stored, sb->stored_hash, sizeof(stored)) != 0 ||
	    memcmp(object, sb->object_hash, sizeof(object)) != 0)
		return refuse(ret_reason, -EBADMSG,
			      "the checksum of the frames' checksums is wrong");
	return 0;
}

/* ---- stubs ----------------------------------------------------------------------------------- */

/*
 * The text of a stub is input like everything that lies in a
 * directory: it is parsed strictly, and what it says of the tier file is checked against that
 * file's own header before a byte is used.
 */

#define PREFIX "shmstore-tier:1:"

void shms_stub_format(const struct shms_stub *stub, char ret_text[SHMS_STUB_SIZE])
{
	snprintf(ret_text, SHMS_STUB_SIZE,
		 PREFIX "%016" PRIx64 ":%016" PRIx64 ":%" PRIu64 ":%" PRIu64, stub->id,
		 stub->generation, stub->header_size, stub->buffer_size);
}

static bool parse_hex(const char **at, uint64_t *ret)
{
	bool is = strnlen(*at, 16) == 16 && shms_hexdigits_read(*at, ret);

	*at += is ? 16 : 0;
	return is;
}

/* A number without leading zeros that a file's size can be. */
static bool parse_size(const char **at, uint64_t *ret)
{
	const char *begin = *at;
	uint64_t n = 0;

	for (; **at >= '0' && **at <= '9'; ++*at) {
		if (n > INT64_MAX / 20)
			return false;
		n = n * 10 + (uint64_t)(**at - '0');
	}
	*ret = n;
	return *at != begin && (begin[0] != '0' || *at == begin + 1);
}

int shms_stub_parse(const char *text, struct shms_stub *ret)
{
	struct shms_stub s = {0};
	const char *at = text + sizeof(PREFIX) - 1;

	if (strncmp(text, PREFIX, sizeof(PREFIX) - 1) != 0)
		return -EBADMSG;
	if (!parse_hex(&at, &s.id) || *at++ != ':' || !parse_hex(&at, &s.generation) ||
	    *at++ != ':')
		return -EBADMSG;
	if (!parse_size(&at, &s.header_size) || *at++ != ':' || !parse_size(&at, &s.buffer_size) ||
	    *at != '\0')
		return -EBADMSG;
	*ret = s;
	return 0;
}

int shms_stub_of(int dirfd, const char *name, const struct stat *st, struct shms_stub *ret)
{
	char text[SHMS_STUB_SIZE];
	ssize_t n = readlinkat(dirfd, name, text, sizeof(text));
	int r;

	if (n < 0 || (size_t)n >= sizeof(text))
		return n < 0 ? -errno : -EBADMSG;
	text[n] = '\0';
	r = shms_stub_parse(text, ret);
	ret->uid = st->st_uid;
	ret->inode = st->st_ino;
	ret->n_names = st->st_nlink;
	return r;
}

int shms_stub_read(int dirfd, const char *name, struct shms_stub *ret, int *ret_fd)
{
	struct stat st;
	int r;
	_fd_ int fd = openat(dirfd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	r = S_ISLNK(st.st_mode) ? shms_stub_of(fd, "", &st, ret) : -EINVAL;
	if (r == 0 && ret_fd)
		*ret_fd = shms_take_fd(&fd);
	return r;
}
