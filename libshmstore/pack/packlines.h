/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packlines.h: the memory of an index (packindex.h): the file "index" in the store's directory,
 * which other processes of the user search, or private memory where there is no room for that
 * (docs/segments.md "The index").
 */
#ifndef SHMS_PACKLINES_H
#define SHMS_PACKLINES_H

#include <stdbool.h>
#include <stdint.h>

#include "packindex.h"

/* The first page of the file. */
struct shms_packlines_head {
	char magic[8];
	uint32_t version;
	uint32_t n_lines;
	uint8_t store_uuid[16];
	_Atomic uint32_t superseded; /* not 0: the store has another index, or none */
	uint8_t reserved[44];        /* 0 */
	/* the uuid of the segment of each number */
	_Atomic uint64_t segments[SHMS_PACKINDEX_SEGMENTS][2];
};
_Static_assert(sizeof(struct shms_packlines_head) == 4096, "a page");

struct shms_packlines {
	struct shms_packline *lines;      /* NULL: none */
	struct shms_packlines_head *head; /* NULL: private memory. Mapped before lines */
	uint32_t n_lines;
	uint64_t bytes; /* that the file takes */
	int fd;         /* until it is published; else -1 */
};
#define SHMS_PACKLINES_NULL \
	{                   \
		.fd = -1    \
	}

/* Bytes that a file of so many lines takes. */
uint64_t shms_packlines_cost(uint32_t n_lines);
/*
 * For the owner. All lines are zero. _file(): a file without a name, with all of its memory;
 * -ENOSPC, -EMFILE, ... No child inherits it. _private(): -ENOMEM.
 */
int shms_packlines_file(int store_fd, const uint8_t store_uuid[16], uint32_t n_lines,
			struct shms_packlines *ret);
int shms_packlines_private(uint32_t n_lines, struct shms_packlines *ret);
/* Says whose segment has that number, before a cell says the number. */
void shms_packlines_segment(const struct shms_packlines *l, uint32_t number,
			    const uint8_t uuid[16]);
/* The file gets its name, in place of another one. Without it nobody else
 * finds the index: 0, -errno. */
int shms_packlines_publish(struct shms_packlines *l, int store_fd);
/* Other processes do not believe the lines from here on; then the memory goes.
 * Those that map them keep them. */
void shms_packlines_end(struct shms_packlines *l);
/* The same of the file that the store's last process left, which keeps its name. 0, -errno:
 * they may believe it still. */
int shms_packlines_supersede(int store_fd);
/* In a child of fork(), which has a copy of private lines. */
void shms_packlines_fork_child(struct shms_packlines *l);

/*
 * For others: maps the store's index to be read. -ENOENT: it has none just now; -EPERM: another
 * user's; -EBADMSG; -ENOTSUP: of a later version. Given back by _close().
 */
int shms_packlines_open(int store_fd, const uint8_t store_uuid[16], struct shms_packlines *ret);
void shms_packlines_close(struct shms_packlines *l);
/* Does the store search by it still? After a search: acquires what the owner did before. */
bool shms_packlines_current(const struct shms_packlines *l);
/* Has it a cell of that hash that means the slot in the segment with that uuid? */
bool shms_packlines_means(const struct shms_packlines *l, uint64_t hash, const uint8_t uuid[16],
			  uint32_t slot);
void shms_packlines_uuid(const struct shms_packlines *l, uint32_t number, uint8_t ret_uuid[16]);

#endif
