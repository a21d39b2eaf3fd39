/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exchange.h: two processes and a SOCK_SEQPACKET pair between them: the producer (we) and a
 * consumer (a forked child on the same CPU). Every message is answered by one.
 */
#ifndef BENCH_EXCHANGE_H
#define BENCH_EXCHANGE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define EXCHANGE_MAX 4352u /* bytes of a message: a ticket fits */

struct exchange {
	int fd;
	pid_t child;
};

/*
 * Forks a child that calls begin(arg) (may be NULL; 0 or -errno, which the parent gets
 * back as *ret_error), then for each message take(arg, message, size, fd) and answers with
 * what that returned; fd is a descriptor that came along, or -1; it is closed afterwards.
 * The child ends with the parent.
 */
struct exchange_consumer {
	int (*begin)(void *arg);
	int (*take)(void *arg, const void *message, size_t size, int fd);
	void *arg;
};
int exchange_start(struct exchange *x, const struct exchange_consumer *consumer);
/* Sends, waits for the answer: what take() returned, or -errno. fd = -1: none goes along. */
int exchange_call(struct exchange *x, const void *message, size_t size, int fd);
/* Ends the child and waits for it. Idempotent. */
void exchange_stop(struct exchange *x);

#ifdef __cplusplus
}
#endif
#endif
