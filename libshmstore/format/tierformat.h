/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierformat.h: the bytes of a tier file (docs/format.md): one object, whole, in frames. Pure.
 *
 *   0             superblock, 256 bytes
 *   256           the object's key
 *   table_off     n_frames entries of 64 bytes; table_off = round_up(256 + key_size, 64)
 *   ...           zero up to header_size, a multiple of 4096
 *   header_size   frame 0, frame 1, ... each begins at a multiple of 4096
 *                 and is padded to one with zeros
 *   file_size     the end
 *
 * A frame is frame_size bytes of the object's file (the last one less), raw or compressed by
 * itself, so that frames are read, checked and decompressed in any order and side by side. Every
 * bit of the file is under a hash: header_hash covers the header with its padding, each frame's
 * hash its bytes with their padding. The hash of the whole is the hash of its frames' hashes, a
 * tree of depth one. An object of which no frame is compressed lies in one piece at header_size
 * (SHMS_TIER_RAW): it can be mapped.
 */
#ifndef SHMS_TIERFORMAT_H
#define SHMS_TIERFORMAT_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#define SHMS_TIER_MAGIC      "\x89SHMTIR\n"
#define SHMS_TIER_VERSION    1u
#define SHMS_TIER_FRAME      (4u << 20) /* bytes */
#define SHMS_TIER_ALIGN      4096u      /* of frames in the file: what O_DIRECT asks for */
#define SHMS_TIER_SUPERBLOCK 256u       /* bytes */
#define SHMS_TIER_RAW        (1u << 0)  /* flags: no frame is compressed */

enum shms_codec {
	SHMS_CODEC_RAW = 0,
	SHMS_CODEC_ZSTD = 1,
	/* Pieces of 256 KiB, the last one less; of each the planes (codec.c), and a byte that is 0
	 * (docs/format.md), as zstd frames of its own: */
	SHMS_CODEC_ZSTD_DELTA8 = 2, /* of the differences of 8-byte words */
	SHMS_CODEC_ZSTD_DELTA4 = 3, /* of those of 4-byte words */
	SHMS_CODEC_ZSTD_WORDS8 = 4, /* of 8-byte words; pairs of 4-byte ones come out as well */
	SHMS_CODEC_N,               /* how many */
};

struct shms_tier_superblock {
	uint8_t magic[8];
	uint32_t version;
	uint32_t superblock_size; /* 256 */
	uint64_t header_size;     /* bytes before the first frame */
	uint64_t file_size;       /* bytes of this file */
	uint64_t id;              /* the file's name, in hexadecimal */
	uint64_t generation;      /* the object's */
	uint64_t object_size;     /* bytes of the object's file */
	uint64_t object_header;   /* its header_size */
	uint64_t object_buffer;   /* its buffer_size: the two add up to object_size */
	uint64_t created_ns;      /* CLOCK_REALTIME */
	uint32_t key_size;
	uint32_t n_frames;
	uint32_t frame_size; /* SHMS_TIER_FRAME */
	uint32_t flags;
	uint32_t incompat_flags; /* 0 */
	int32_t level;           /* of the compressor */
	/* XXH3-128 of the frames' stored_hash, one after the other; low half first, as all here */
	uint64_t stored_hash[2];
	/* XXH3-128 of the frames' object_hash: what the object's bytes were */
	uint64_t object_hash[2];
	uint64_t header_hash[2]; /* XXH3-128 of [0, header_size) with this field zero */
	uint8_t reserved[104];
};

struct shms_tier_frame {
	uint64_t offset;   /* in the tier file */
	uint32_t stored;   /* bytes at offset, without padding */
	uint32_t original; /* bytes of the object */
	uint32_t codec;    /* enum shms_codec */
	uint32_t reserved;
	uint64_t stored_hash[2]; /* XXH3-128 of the bytes in the file, padding included */
	uint64_t object_hash[2]; /* XXH3-128 of the object's bytes */
	uint64_t reserved1;
};

_Static_assert(sizeof(struct shms_tier_superblock) == SHMS_TIER_SUPERBLOCK, "superblock");
_Static_assert(offsetof(struct shms_tier_superblock, header_hash) == 136, "header_hash");
_Static_assert(sizeof(struct shms_tier_frame) == 64, "frame");

/* A header in memory: one allocation of header_size bytes, laid out as in the file,
 * aligned to SHMS_TIER_ALIGN. */
struct shms_tier_header {
	unsigned char *bytes; /* header_size of them */
	struct shms_tier_superblock *sb;
	const void *key;
	struct shms_tier_frame *frames; /* sb->n_frames */
};

/* Describes a new tier file. */
struct shms_tier_object {
	uint64_t id, generation;
	uint64_t header_size, buffer_size; /* the object's */
	const void *key;
	uint32_t key_size;
	int level;
};

/* Makes a header whose frames are still to be filled in (original sizes are).
 * shms_tier_header_deinit() is owed. 0, -ENOMEM, -EINVAL. */
int shms_tier_header_init(struct shms_tier_header *h, const struct shms_tier_object *o);
void shms_tier_header_deinit(struct shms_tier_header *h);
/* The frames are all there: offsets, sizes, hashes, codecs. Fills flags, file_size
 * and the hashes of the whole. */
void shms_tier_header_finish(struct shms_tier_header *h);
/* How much has to be read for the whole header, from its first SHMS_TIER_ALIGN
 * bytes. 0, -EBADMSG, -ENOTSUP. */
int shms_tier_header_need(const void *first, size_t size, uint64_t file_size, uint64_t *ret_need);
/* Checks everything about a header read into h->bytes (size bytes, shms_tier_header_alloc()), also
 * against the file's size; sets the pointers. reason: static text, set on failure, may be NULL. 0,
 * -EBADMSG, -ENOTSUP (version, codec). */
int shms_tier_header_parse(struct shms_tier_header *h, uint64_t size, uint64_t file_size,
			   const char **ret_reason);
int shms_tier_header_alloc(struct shms_tier_header *h, uint64_t size);
/* XXH3-128, low half first. */
void shms_tier_hash(const void *bytes, size_t size, uint64_t ret_hash[2]);

static inline uint64_t shms_tier_pad(uint64_t size)
{
	return (size + SHMS_TIER_ALIGN - 1) & ~(uint64_t)(SHMS_TIER_ALIGN - 1);
}

/*
 * A stub: what stands in objects/ for a demoted object: a symbolic link that leads nowhere and
 * whose text says where the object is.
 *
 *   shmstore-tier:1:<id, 16 hex digits>:<generation, 16 hex digits>:<header_size>:<buffer_size>
 *
 * Short symbolic links take no page on tmpfs. A stub is an inode like any object's: it is linked
 * into every store that holds the object, into handoff/ by a lease, and once into the partition's
 * tier/<uid>/<id>.stub, the anchor. So st_nlink - 1 is the number of names that the tier file has,
 * and with the last one it is garbage: nobody links from an anchor.
 */

#define SHMS_STUB_SIZE 128u /* bytes of a stub's text with its NUL */
#define SHMS_DIR_CLEAN "clean"

struct shms_stub {
	uint64_t id;          /* of the tier file */
	uint64_t generation;  /* of the object */
	uint64_t header_size; /* of the object */
	uint64_t buffer_size;
	/* of the link, where it was read from one */
	uid_t uid;
	uint64_t inode;
	uint64_t n_names; /* st_nlink, the anchor's included */
};

void shms_stub_format(const struct shms_stub *stub, char ret_text[SHMS_STUB_SIZE]);
/* Fills all but uid, inode and n_names. 0, -EBADMSG. */
int shms_stub_parse(const char *text, struct shms_stub *ret);
/* As shms_stub_read() of a link that was just looked at: one call, where there may
 * be many thousands of stubs. */
int shms_stub_of(int dirfd, const char *name, const struct stat *st, struct shms_stub *ret);
/*
 * Reads the stub called name in dirfd. ret_fd: the link itself, open (O_PATH), so that what is done
 * to its name later can be told from its nlink; may be NULL. 0, -ENOENT, -EINVAL (no symbolic
 * link), -EBADMSG (none of ours), -errno.
 */
int shms_stub_read(int dirfd, const char *name, struct shms_stub *ret, int *ret_fd);

/* Does the error say that there is no stub of ours? With any other it could not be read. */
static inline bool shms_stub_none(int error)
{
	return error == -ENOENT || error == -EINVAL || error == -EBADMSG;
}

#endif
