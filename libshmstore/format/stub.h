/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stub.h: what stands in objects/ for a demoted object: a symbolic link that leads nowhere and
 * whose text says where the object is.
 *
 *   shmstore-tier:1:<id, 16 hex digits>:<generation, 16 hex digits>:<header_size>:<buffer_size>
 *
 * Short symbolic links take no page on tmpfs. A stub is an inode like any object's: it is linked
 * into every store that holds the object, into handoff/ by a lease, and once into the partition's
 * tier/<uid>/<id>.stub, the anchor. So st_nlink - 1 is the number of names that the tier file has,
 * and with the last one it is garbage: nobody links from an anchor.
 */
#ifndef SHMS_STUB_H
#define SHMS_STUB_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

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
