/* SPDX-License-Identifier: Apache-2.0 */
/*
 * place.h: where a benchmark puts its files: a tmpfs of its own with huge=within_size (root
 * only; in a mount namespace of its own, seen by nobody else), or a directory of /dev/shm as
 * the machine has it. Either is gone when the benchmark ends, however it ends: a janitor
 * process waits for its death.
 */
#ifndef BENCH_PLACE_H
#define BENCH_PLACE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct place {
	const char *label; /* "within_size", "/dev/shm" or "disk" */
	char path[64];     /* an empty directory */
	char huge[16];     /* what the mount says: "never", "within_size", ... */
	pid_t janitor;     /* 0 = closed */
	int alive;         /* write end of the janitor's pipe: its end is our death */
};

/* size in bytes, inodes in number, 0 = tmpfs's default. 0, -EPERM (not root), -errno. */
int place_open_mount(struct place *p, uint64_t size, uint64_t inodes);
int place_open_devshm(struct place *p);
/* A directory on a disk: below $SHMSTORE_BENCH_DISK, else /var/tmp. -ENODEV
 * where that lies in memory. */
int place_open_disk(struct place *p);
/* Removes everything and waits until it is gone. Idempotent. */
void place_close(struct place *p);

/*
 * Takes size bytes of the place once and gives them back, so that what follows does
 * not pay for memory that the host has taken away. 0 or -errno; -ENOSPC is no error
 * (the place is then warm enough).
 */
int place_warm(const struct place *p, uint64_t size);
/* Bytes that the place's file system has in use: what df says. */
uint64_t place_used(const struct place *p);

/*
 * The same for what grows over seconds: the place holds size bytes until they are given back piece
 * by piece, just before they are needed, so that the host has no time to take them. Not more than
 * size; deinit gives all back.
 */
struct place_reserve {
	int fd;
	uint64_t left;
};
int place_reserve_init(struct place_reserve *r, const struct place *p, uint64_t size);
void place_reserve_give(struct place_reserve *r, uint64_t bytes);
void place_reserve_deinit(struct place_reserve *r);

/* The name of one POSIX shared memory object that goes with a place on /dev/shm. */
void place_shm_name(const struct place *p, char ret_name[64]);

/* path/name; 0 or -ENAMETOOLONG. */
int place_path(const struct place *p, const char *name, char *ret_path, size_t size);

#ifdef __cplusplus
}
#endif
#endif
