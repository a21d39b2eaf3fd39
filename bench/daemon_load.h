/* SPDX-License-Identifier: Apache-2.0 */
/*
 * daemon_load.h: what a daemon has to bear in bench_daemon: clients that ask and wait, one
 * request after the other, and one that means harm. Each is a process; what they count is in
 * memory shared with the one who measures.
 */
#ifndef BENCH_DAEMON_LOAD_H
#define BENCH_DAEMON_LOAD_H

#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define LOAD_CLIENTS 8u
#define LOAD_BUCKETS 640u /* 16 to each doubling of ns */

struct load_counts {
	uint64_t n;
	uint64_t buckets[LOAD_BUCKETS];
};

struct load_client {
	_Alignas(64) _Atomic uint64_t n; /* answered */
	_Atomic uint64_t buckets[LOAD_BUCKETS];
};

struct load {
	_Atomic bool run;
	_Atomic int failed; /* errno of a client that could not go on */
	sem_t gate;
	pid_t pids[LOAD_CLIENTS];
	struct load_client clients[LOAD_CLIENTS];
};

/* The clients of the server at path, each connected, waiting for load_run(). 0, -errno. */
int load_start(const char *path, struct load **ret);
void load_run(struct load *l, bool run);
/* All that was answered so far. */
void load_counts(const struct load *l, struct load_counts *ret);
/* The time in ns below which the part p of the answers after a and up to b came. */
double load_quantile(const struct load_counts *a, const struct load_counts *b, double p);
struct load *load_stop(struct load *l);

/* The least that such a server can be: answers each packet with itself, one process,
 * epoll. Its pid, or -errno. */
pid_t load_echo_server(const char *path);

struct harm {
	const char *name;
	void (*run)(const char *path); /* until it is killed */
};
extern const struct harm load_harms[];
extern const unsigned load_n_harms;
/* As another user where we may be one, so that it does not use up ours. Its pid, or -errno. */
pid_t load_harm(const struct harm *h, const char *path);
/* Kills and waits. */
void load_kill(pid_t pid);

/* A connection that said HELLO and was welcomed; -errno. */
int load_connect(const char *path, bool hello);

#endif
