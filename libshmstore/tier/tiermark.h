/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tiermark.h: the file "partition" in a directory of tier files: which partition they are of, so
 * that gc of another partition that shares the disk can tell whether that one can ever come back.
 */
#ifndef SHMS_TIERMARK_H
#define SHMS_TIERMARK_H

#include <shmstore/shmstore.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SHMS_TIERMARK_FILE "partition"
#define SHMS_TIERMARK_NEW  "partition.new" /* becomes it, or was left by who was killed */
#define SHMS_TIERMARK_TEXT 6144            /* bytes that a mark's text never exceeds */

struct shms_tiermark {
	char uuid[37];
	char host[33]; /* /etc/machine-id; "-" = unknown */
	char boot[33]; /* 32 hex digits */
	uint64_t device;
	uint64_t fsid; /* the kernel's, of this mount of a tmpfs; 0 = unknown */
	char path[4096];
};

/* The mark of this partition, now. 0, -errno (the host's name for itself cannot be read). */
int shms_tiermark_of(const struct shmstore_partition *p, struct shms_tiermark *ret);
/* Pure: values to text and back. 0, -EINVAL (a path that no line can
 * hold); 0, -EBADMSG, -ENOTSUP. */
int shms_tiermark_format(const struct shms_tiermark *m, char ret_text[SHMS_TIERMARK_TEXT]);
int shms_tiermark_parse(char *text, struct shms_tiermark *ret);
/* 0, -ENOENT, -EBADMSG, -ENOTSUP, -EPERM (its writer does not own the directory), -EIO. */
int shms_tiermark_read(int dirfd, struct shms_tiermark *ret);
/* Puts the mark in place whole. uid: its owner. 0, -errno. */
int shms_tiermark_write(int dirfd, const struct shms_tiermark *m, uid_t uid);

/* Facts about this host by which another partition's directory is judged. */
struct shms_tiermark_facts {
	struct shms_tiermark here; /* host and boot; device and fsid of the partition at hand */
	bool whole;                /* every process of the host can be asked what it has mounted */
	bool mounted;              /* somebody has the mark's device mounted */
};

/* Is the partition of this mark gone for ever? Pure. ret_why: static text, either way. */
bool shms_tiermark_gone(const struct shms_tiermark *m, const struct shms_tiermark_facts *facts,
			const char **ret_why);

/*
 * Writes text to a new file tmp_name in dirfd, 0444, uid's, and renames it to name. Readers see the
 * old text or the new one; a killed writer may leave tmp_name, which the next replaces. 0, -errno.
 */
int shms_textfile_replace(int dirfd, const char *tmp_name, const char *name, const char *text,
			  uid_t uid);

#endif
