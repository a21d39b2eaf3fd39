/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor.h: what the doctor knows of the partition and the host, and its findings. The checks
 * are grouped by what they ask: mount.c the file system and the disk tier, host.c limits and
 * settings, and the kernel's abilities by trying them, doctor.c shmstored.
 */
#ifndef DOCTOR_H
#define DOCTOR_H

#include <limits.h>
#include <shmstore/inspect.h>
#include <stdbool.h>
#include <stdint.h>

#include "admin.h"
#include "memsource.h"
#include "sysroot.h"

enum doctor_level {
	DOCTOR_OK,
	DOCTOR_WARN,
	DOCTOR_FAIL
};

struct doctor {
	const struct admin *admin;
	char path[PATH_MAX];          /* as the user named it */
	char dir[PATH_MAX];           /* canonical; of the nearest parent where path is missing */
	bool exists;                  /* path is a directory */
	bool writable;                /* by us */
	struct shmstore_partition *p; /* NULL: cannot be opened, and error says why */
	int error;
	char reason[512];                    /* in words */
	struct shmstore_partition_info info; /* where p is not NULL */
	struct mountinfo_table mounts;
	const struct shms_mountline *mount; /* that holds dir; NULL = unknown */
	bool tmpfs;
	uint64_t size, inodes, inodes_free; /* of the file system; 0 = no limit */
	uint32_t owner;                     /* uid of the partition, ours where there is none */
	struct memsource_reading memory;
	uint64_t ram, swap; /* 0 = unknown, none */
	const char *check;  /* the one that runs */
	/* objects with check, level, found, and fix: a command, "" where nothing is to be done */
	struct json_object *findings, *last;
	uint64_t counts[3]; /* by level */
};

struct doctor_check {
	const char *name;
	void (*run)(struct doctor *d);
};

/* Adds a finding of the check that runs. */
void doctor_add(struct doctor *d, enum doctor_level level, const char *found, ...)
	__attribute__((format(printf, 3, 4)));
#define doctor_ok(d, ...)   doctor_add(d, DOCTOR_OK, __VA_ARGS__)
#define doctor_warn(d, ...) doctor_add(d, DOCTOR_WARN, __VA_ARGS__)
#define doctor_fail(d, ...) doctor_add(d, DOCTOR_FAIL, __VA_ARGS__)
/* The command that mends what was found last. doctor_fix_root() puts sudo before it where we are
 * not root. */
void doctor_fix_as(struct doctor *d, bool root, const char *command, ...)
	__attribute__((format(printf, 3, 4)));
#define doctor_fix(d, ...)      doctor_fix_as(d, false, __VA_ARGS__)
#define doctor_fix_root(d, ...) doctor_fix_as(d, true, __VA_ARGS__)
/* A new file in dir without a name, for trying what it can: opened with those flags. Its
 * descriptor, or -errno. */
int doctor_try_file(const char *dir, int flags);

/* Each ends with one without a name. */
extern const struct doctor_check doctor_of_mount[], doctor_of_host[];
void doctor_check_kernel(struct doctor *d);
void doctor_check_tier(struct doctor *d);

#endif
