/* SPDX-License-Identifier: Apache-2.0 */
/* mapping.h: lines of /proc/PID/maps, and the paths that the kernel tells of files
 * that lost their name. Pure. */
#ifndef SHMS_MAPPING_H
#define SHMS_MAPPING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A mapping of a file that was deleted, or that stands in a store's recycle/, or of a segment. */
struct shms_mapping {
	unsigned long start, end;
	uint64_t offset, ino;
	const char *path;   /* into the line */
	size_t path_length; /* without " (deleted)" */
	bool deleted;
	bool recycled; /* not deleted: the path is in recycle/ */
	bool segment;  /* the path is a segment's, which has objects of many */
	/* shared and writable: of a file in the pool it is the owner's
	 * own, kept for the next put */
	bool writer;
};

/* Reads one line. device: as maps spell it, "major:minor " in hex. false: of another
 * device, or none of those. */
bool shms_mapping_parse(const char *line, size_t length, const char *device,
			struct shms_mapping *ret);
/* Is the last directory of the path of that name, which begins with a slash? *ret_name: what is
 * behind it. */
bool shms_mapping_in_dir(const char *path, size_t length, const char *parent,
			 const char **ret_name);
/* Is path that of a file in a store's recycle/? */
bool shms_mapping_recycled(const char *path, size_t length);
/* Takes " (deleted)" off the end; false where it is not there. */
bool shms_mapping_deleted(const char *path, size_t *io_length);

#endif
