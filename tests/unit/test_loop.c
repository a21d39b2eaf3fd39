/* SPDX-License-Identifier: Apache-2.0 */
/* The loop: every promise of loop.h. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/un.h>
#include <unistd.h>

#include "loop.h"

static struct loop *l;

/* An operation, and what it was told. Static in the tests: some are in
 * flight until the loop goes. */
struct seen {
	struct loop_op op;
	unsigned n, n_last, stop_after, cancel_after; /* calls; 0: never */
	int results[4096];
	unsigned char first[4096]; /* byte of each packet */
	bool fds, truncated;
};

static void see(struct loop_op *op, int result, unsigned flags)
{
	struct seen *s = (struct seen *)(void *)op;

	cr_assert_lt(s->n, 4096);
	cr_assert_eq(op->busy, !!(flags & LOOP_MORE));
	s->results[s->n] = result;
	if (!(flags & LOOP_MORE))
		s->n_last++;
	s->n++;
	if (s->n == s->cancel_after)
		loop_cancel(l, op);
	if (s->n == s->stop_after || (s->n_last && !s->stop_after))
		loop_stop(l);
}

static void see_packet(struct loop_op *op, int result, unsigned flags)
{
	struct seen *s = (struct seen *)(void *)op;

	if (result > 0 && flags & LOOP_MORE) {
		s->first[s->n] = *(const unsigned char *)loop_packet(l)->data;
		cr_assert_eq((uintptr_t)loop_packet(l)->data % 8, 0);
		s->fds |= loop_packet(l)->fds;
		s->truncated |= loop_packet(l)->truncated;
	}
	see(op, result, flags);
}

static void pair(int fds[2])
{
	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
}

static unsigned n_open(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

#define WITH_LOOP(name)                        \
	static void name##_on(void);           \
	Test(loop, name)                       \
	{                                      \
		cr_assert_eq(loop_new(&l), 0); \
		name##_on();                   \
		cr_assert_null(loop_free(l));  \
	}                                      \
	static void name##_on(void)

WITH_LOOP(its_backend_has_a_name)
{
	cr_assert_str_eq(loop_backend(l), "epoll");
}

WITH_LOOP(packets_arrive_whole_and_in_order_then_the_end)
{
	static struct seen s = {.op.fn = see_packet, .stop_after = 0};
	int fds[2];

	pair(fds);
	cr_assert_eq(loop_receive(l, &s.op, fds[0]), 0);
	/* More than there are buffers, and more than a turn handles. */
	for (int i = 0; i < 200; i++) {
		unsigned char packet[300];

		memset(packet, i, sizeof(packet));
		cr_assert_eq(send(fds[1], packet, (size_t)i + 1, 0), i + 1);
	}
	close(fds[1]);
	cr_assert_eq(loop_run(l), 0);
	cr_assert_eq(s.n, 201);
	for (int i = 0; i < 200; i++)
		cr_assert(s.results[i] == i + 1 && s.first[i] == i, "%d: %d bytes of %d", i,
			  s.results[i], s.first[i]);
	cr_assert_eq(s.results[200], 0);
	cr_assert(!s.fds && !s.truncated && !s.op.busy);
	close(fds[0]);
}

WITH_LOOP(a_packet_too_large_is_said_to_be_cut)
{
	static struct seen s = {.op.fn = see_packet, .stop_after = 2};
	static char packet[LOOP_PACKET_MAX + 1];
	int fds[2];

	pair(fds);
	cr_assert_eq(loop_receive(l, &s.op, fds[0]), 0);
	cr_assert_eq(send(fds[1], packet, LOOP_PACKET_MAX, 0), LOOP_PACKET_MAX);
	s.stop_after = 1;
	cr_assert_eq(loop_run(l), 0);
	cr_assert(s.results[0] == LOOP_PACKET_MAX && !s.truncated);
	cr_assert_eq(send(fds[1], packet, sizeof(packet), 0), (ssize_t)sizeof(packet));
	s.stop_after = 2;
	cr_assert_eq(loop_run(l), 0);
	cr_assert(s.results[1] == LOOP_PACKET_MAX && s.truncated);
	cr_assert(s.op.busy);
}

WITH_LOOP(descriptors_are_said_and_never_become_ours)
{
	static struct seen s = {.op.fn = see_packet, .stop_after = 1};
	char control[CMSG_SPACE(250 * sizeof(int))] = {0};
	struct iovec v = {(char[]){"x"}, 1};
	struct msghdr m = {.msg_iov = &v,
			   .msg_iovlen = 1,
			   .msg_control = control,
			   .msg_controllen = sizeof(control)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	unsigned before;
	int fds[2], many[250];

	pair(fds);
	for (int i = 0; i < 250; i++)
		many[i] = fds[1];
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(many));
	memcpy(CMSG_DATA(c), many, sizeof(many));
	cr_assert_eq(loop_receive(l, &s.op, fds[0]), 0);
	before = n_open();
	cr_assert_eq(sendmsg(fds[1], &m, 0), 1);
	cr_assert_eq(loop_run(l), 0);
	cr_assert(s.results[0] == 1 && s.fds);
	cr_assert_eq(n_open(), before);
}

WITH_LOOP(a_flood_leaves_others_their_turn)
{
	static struct seen flood = {.op.fn = see_packet, .stop_after = 4000},
			   other = {.op.fn = see_packet, .stop_after = 1};
	int a[2], b[2];

	pair(a);
	pair(b);
	cr_assert_eq(loop_receive(l, &flood.op, a[0]), 0);
	cr_assert_eq(loop_receive(l, &other.op, b[0]), 0);
	while (send(a[1], "x", 1, MSG_DONTWAIT) == 1)
		;
	cr_assert_eq(send(b[1], "y", 1, 0), 1);
	cr_assert_eq(loop_run(l), 0);
	cr_assert_eq(other.n, 1);
	cr_assert_leq(flood.n, 128, "%u packets of the flood came first", flood.n);
}

/* Sends packets, each of which has the next number, until the socket takes no more. */
static unsigned fill(int fd)
{
	unsigned char n = 0;
	unsigned sent = 0;

	for (; send(fd, &n, 1, MSG_DONTWAIT) == 1; sent++)
		n++;
	return sent;
}

WITH_LOOP(who_never_stops_is_read_a_little_at_a_time_and_then_as_before)
{
	static struct seen flood = {.op.fn = see_packet}, bell = {.op.fn = see, .stop_after = 1};
	unsigned sent, n;
	uint64_t begin = loop_clock(), ms;
	int fds[2];

	pair(fds);
	sent = fill(fds[1]);
	cr_assert_gt(sent, 150); /* 64 turns, 8 at once, and 8 each ms */
	flood.stop_after = sent;
	cr_assert_eq(loop_receive(l, &flood.op, fds[0]), 0);
	cr_assert_eq(loop_timer(l, &bell.op, begin + 5000000, 0), 0);
	cr_assert_eq(loop_run(l), 0);
	ms = (loop_clock() - begin) / 1000000;
	n = flood.n;
	cr_assert_leq(n, 72 + 8 * (ms + 1), "%u packets in %u ms", n, (unsigned)ms);
	while (flood.n < sent)
		cr_assert_eq(loop_run(l), 0);
	for (unsigned i = 0; i < sent; i++)
		cr_assert_eq(flood.first[i], (unsigned char)i, "in order");
	/* Found empty, it is woken by its next packet. */
	flood.stop_after = sent + 1;
	bell.n = bell.n_last = 0;
	cr_assert_eq(loop_timer(l, &bell.op, loop_clock() + 20000000, 0), 0);
	cr_assert_eq(loop_run(l), 0);
	cr_assert_eq(send(fds[1], "x", 1, 0), 1);
	cr_assert_eq(loop_run(l), 0);
	cr_assert_eq(flood.n, sent + 1);
	close(fds[1]);
	flood.stop_after = 0;
	cr_assert_eq(loop_run(l), 0);
	cr_assert(flood.n_last == 1 && flood.results[sent + 1] == 0, "its end is seen");
}

WITH_LOOP(who_is_read_a_little_at_a_time_is_cancelled_as_others)
{
	static struct seen flood = {.op.fn = see_packet, .cancel_after = 100};
	int fds[2];

	pair(fds);
	cr_assert_gt(fill(fds[1]), 100);
	cr_assert_eq(loop_receive(l, &flood.op, fds[0]), 0);
	cr_assert_eq(loop_run(l), 0);
	cr_assert(flood.n == 101 && flood.n_last == 1 && flood.results[100] == -ECANCELED);
	flood = (struct seen){.op.fn = see_packet, .stop_after = 50};
	cr_assert_eq(loop_receive(l, &flood.op, fds[0]), 0);
	cr_assert_eq(loop_run(l), 0);
	flood.stop_after = 0;
	loop_cancel(l, &flood.op); /* between two looks of the timer */
	cr_assert_eq(loop_run(l), 0);
	cr_assert(flood.n_last == 1 && flood.results[flood.n - 1] == -ECANCELED);
}

WITH_LOOP(every_connection_is_accepted)
{
	static struct seen s = {.op.fn = see, .stop_after = 50};
	struct sockaddr_un a = {.sun_family = AF_UNIX}; /* the kernel chooses a name */
	socklen_t size = sizeof(sa_family_t);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), clients[50];

	cr_assert_eq(bind(fd, (struct sockaddr *)&a, size), 0);
	size = sizeof(a);
	cr_assert_eq(getsockname(fd, (struct sockaddr *)&a, &size), 0);
	cr_assert_eq(listen(fd, 128), 0);
	cr_assert_eq(loop_accept(l, &s.op, fd), 0);
	for (int i = 0; i < 50; i++) {
		clients[i] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
		cr_assert_eq(connect(clients[i], (struct sockaddr *)&a, size), 0);
	}
	cr_assert_eq(loop_run(l), 0);
	cr_assert(s.n == 50 && s.op.busy);
	for (int i = 0; i < 50; i++) {
		cr_assert_geq(s.results[i], 0);
		cr_assert_eq(fcntl(s.results[i], F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
		cr_assert_eq(send(s.results[i], "x", 1, 0), 1);
	}
	s.stop_after = 51;
	loop_cancel(l, &s.op);
	cr_assert_eq(loop_run(l), 0);
	cr_assert(s.results[50] == -ECANCELED && s.n_last == 1);
}

WITH_LOOP(a_send_waits_until_the_socket_takes_it)
{
	static struct seen s = {.op.fn = see};
	char buffer[1000] = {0};
	unsigned filled = 0;
	int fds[2];

	pair(fds);
	cr_assert_eq(loop_send(l, &s.op, fds[0], "abc", 3), 0);
	cr_assert_eq(s.n, 0); /* never from within the start */
	cr_assert_eq(loop_run(l), 0);
	cr_assert(s.results[0] == 3 && recv(fds[1], buffer, sizeof(buffer), 0) == 3);

	while (send(fds[0], buffer, sizeof(buffer), MSG_DONTWAIT) > 0)
		filled++;
	cr_assert_eq(loop_send(l, &s.op, fds[0], "defg", 4), 0);
	for (unsigned i = 0; i < filled; i++) {
		cr_assert_eq(s.n, 1);
		cr_assert_eq(recv(fds[1], buffer, sizeof(buffer), 0), (ssize_t)sizeof(buffer));
	}
	cr_assert_eq(loop_run(l), 0);
	cr_assert(s.results[1] == 4 && recv(fds[1], buffer, sizeof(buffer), 0) == 4);

	close(fds[1]);
	cr_assert_eq(loop_send(l, &s.op, fds[0], "h", 1), 0);
	cr_assert_eq(loop_run(l), 0);
	cr_assert_eq(s.results[2], -EPIPE);
}

WITH_LOOP(a_poll_says_each_change_and_a_single_one_is_over)
{
	static struct seen each = {.op.fn = see, .stop_after = 1}, once = {.op.fn = see};
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	eventfd_t value;

	cr_assert_eq(loop_poll(l, &each.op, fd, POLLIN, false), 0);
	for (unsigned i = 1; i <= 3; i++) {
		each.stop_after = i;
		eventfd_write(fd, 1);
		cr_assert_eq(loop_run(l), 0);
		cr_assert(each.results[i - 1] & POLLIN);
		cr_assert_eq(eventfd_read(fd, &value), 0);
	}
	each.stop_after = 4;
	loop_cancel(l, &each.op);
	cr_assert_eq(loop_run(l), 0);
	cr_assert(each.results[3] == -ECANCELED && !each.op.busy);

	eventfd_write(fd, 1);
	for (unsigned i = 1; i <= 2; i++) { /* unread: as it is, at each start */
		cr_assert_eq(loop_poll(l, &once.op, fd, POLLIN, true), 0);
		cr_assert_eq(loop_run(l), 0);
		cr_assert(once.n == i && once.results[i - 1] & POLLIN && !once.op.busy);
	}
}

WITH_LOOP(two_polls_of_one_descriptor_each_say_their_own)
{
	static struct seen reads = {.op.fn = see, .stop_after = 1},
			   writes = {.op.fn = see, .stop_after = 1};
	int fds[2];

	pair(fds);
	cr_assert_eq(loop_poll(l, &reads.op, fds[0], POLLIN, true), 0);
	cr_assert_eq(loop_poll(l, &writes.op, fds[0], POLLOUT, true), 0);
	cr_assert_eq(loop_run(l), 0);
	cr_assert(writes.n_last == 1 && writes.results[0] == POLLOUT && reads.n == 0);
	cr_assert_eq(loop_poll(l, &writes.op, fds[0], POLLOUT, true), 0);
	cr_assert_eq(send(fds[1], "x", 1, 0), 1);
	while (reads.n == 0)
		cr_assert_eq(loop_run(l), 0);
	cr_assert(reads.n_last == 1 && reads.results[0] & POLLIN);
	cr_assert(writes.n == 2 || writes.op.busy);
}

WITH_LOOP(timers_come_when_due_and_skip_what_was_missed)
{
	static struct seen once = {.op.fn = see}, every = {.op.fn = see, .stop_after = 3};
	uint64_t begun = loop_clock();

	cr_assert_eq(loop_timer(l, &once.op, begun + 3000000, 0), 0);
	cr_assert_eq(loop_run(l), 0);
	cr_assert(once.results[0] == 0 && loop_now(l) >= begun + 3000000);

	/* Due since the machine was started: one call, then the next one to come. */
	begun = loop_clock();
	cr_assert_eq(loop_timer(l, &every.op, 1, 2000000), 0);
	cr_assert_eq(loop_run(l), 0);
	cr_assert(every.n == 3 && every.op.busy && loop_now(l) >= begun + 2000000);
	every.stop_after = 0; /* the last call: one that is due by now may come before it */
	loop_cancel(l, &every.op);
	cr_assert_eq(loop_run(l), 0);
	cr_assert(every.n_last == 1 && every.results[every.n - 1] == -ECANCELED && !every.op.busy);
	cr_assert(every.n == 4 || (every.n == 5 && every.results[3] == 0));

	/* One far away does not come; a cancel ends it. */
	cr_assert_eq(loop_timer(l, &once.op, begun + UINT64_C(3600000000000), 0), 0);
	loop_cancel(l, &once.op);
	cr_assert_eq(loop_run(l), 0);
	cr_assert(once.n == 2 && once.results[1] == -ECANCELED);
}

WITH_LOOP(a_timer_by_a_time_comes_by_then)
{
	static struct seen s = {.op.fn = see};
	uint64_t begun = loop_clock(), hour = UINT64_C(3600000000000);

	/* It runs to an hour's end; a later time changes nothing, an earlier one ends it. */
	cr_assert_eq(loop_timer_by(l, &s.op, begun + hour), 0);
	cr_assert_eq(loop_timer_by(l, &s.op, begun + 2 * hour), 0);
	cr_assert_eq(loop_timer_by(l, &s.op, begun + 3000000), 0);
	cr_assert_eq(loop_run(l), 0);
	cr_assert(s.n == 1 && s.results[0] == -ECANCELED && loop_now(l) < begun + hour);
	cr_assert_eq(loop_timer_by(l, &s.op, begun + 3000000), 0);
	cr_assert_eq(loop_run(l), 0);
	cr_assert(s.n == 2 && s.results[1] == 0 && loop_now(l) >= begun + 3000000);
}

WITH_LOOP(a_released_operation_is_not_called_and_its_memory_goes)
{
	struct seen *idle = calloc(1, sizeof(*idle)), *timer = calloc(1, sizeof(*timer)),
		    *packets = calloc(1, sizeof(*packets));
	static struct seen after = {.op.fn = see};
	int fds[2];

	cr_assert(idle && timer && packets);
	timer->op.fn = packets->op.fn = see; /* which would stop the loop too early */
	pair(fds);
	cr_assert_eq(loop_timer(l, &timer->op, loop_clock(), 1000000), 0);
	cr_assert_eq(loop_receive(l, &packets->op, fds[0]), 0);
	cr_assert_eq(send(fds[1], "a", 1, 0), 1);
	loop_release(l, &idle->op, idle);
	loop_release(l, &timer->op, timer);
	loop_release(l, &packets->op, packets);
	cr_assert_eq(loop_timer(l, &after.op, loop_clock() + 20000000, 0), 0);
	cr_assert_eq(loop_run(l), 0);
	cr_assert(after.n == 1 && after.results[0] == 0);
}

WITH_LOOP(a_cancel_from_within_ends_with_one_last_call)
{
	static struct seen s = {.op.fn = see_packet, .cancel_after = 1},
			   timer = {.op.fn = see, .cancel_after = 2};
	int fds[2];

	pair(fds);
	cr_assert_eq(loop_receive(l, &s.op, fds[0]), 0);
	cr_assert_eq(send(fds[1], "a", 1, 0), 1);
	cr_assert_eq(loop_run(l), 0);
	cr_assert(s.n_last == 1 && s.results[s.n - 1] == -ECANCELED && !s.op.busy);
	/* It can be used again at once. */
	s = (struct seen){.op.fn = see_packet, .stop_after = 1};
	cr_assert_eq(loop_receive(l, &s.op, fds[0]), 0);
	cr_assert_eq(send(fds[1], "b", 1, 0), 1);
	cr_assert_eq(loop_run(l), 0);
	cr_assert(s.results[0] == 1 && s.first[0] == 'b');

	cr_assert_eq(loop_timer(l, &timer.op, loop_clock(), 1000000), 0);
	cr_assert_eq(loop_run(l), 0);
	cr_assert(timer.n == 3 && timer.n_last == 1 && timer.results[2] == -ECANCELED);
	loop_cancel(l, &timer.op); /* idle: nothing */
}

static struct seen *made;

static void free_itself(struct loop_op *op, int result, unsigned flags)
{
	cr_assert((result == 0 || result == -ECANCELED) && !flags);
	free(op);
	/* Most likely at the same address: the old one's cancel must not meet it. */
	made = calloc(1, sizeof(*made));
	made->op.fn = see;
	cr_assert_eq(loop_timer(l, &made->op, loop_clock() + UINT64_C(3600000000000), 0), 0);
	loop_stop(l);
}

WITH_LOOP(an_owner_may_free_itself_in_the_last_call)
{
	struct seen *s = calloc(1, sizeof(*s));

	s->op.fn = free_itself;
	cr_assert_eq(loop_timer(l, &s->op, loop_clock(), 0), 0);
	loop_cancel(l, &s->op); /* may come too late, or not */
	s = NULL;
	cr_assert_eq(loop_run(l), 0);
	cr_assert(made->op.busy);
	loop_cancel(l, &made->op);
	cr_assert_eq(loop_run(l), 0);
	cr_assert(made->n == 1 && made->results[0] == -ECANCELED);
	free(made);
}

static unsigned n_ended;

static void end_and_try_again(struct loop_op *op, int result, unsigned flags)
{
	cr_assert_eq(result, -ECANCELED);
	cr_assert(!(flags & LOOP_MORE));
	cr_assert_eq(loop_timer(l, op, loop_clock(), 0), -ECANCELED);
	n_ended++;
}

WITH_LOOP(the_end_of_the_loop_ends_what_is_in_flight)
{
	static struct loop_op ops[4];
	int fds[2], fd = eventfd(0, EFD_CLOEXEC);

	pair(fds);
	for (int i = 0; i < 4; i++)
		ops[i].fn = end_and_try_again;
	while (send(fds[0], "x", 1, MSG_DONTWAIT) > 0)
		;
	cr_assert_eq(loop_send(l, &ops[0], fds[0], "y", 1), 0);
	cr_assert_eq(loop_receive(l, &ops[1], fds[0]), 0);
	cr_assert_eq(loop_poll(l, &ops[2], fd, POLLIN, false), 0);
	cr_assert_eq(loop_timer(l, &ops[3], loop_clock() + UINT64_C(3600000000000), 1), 0);
	l = loop_free(l);
	cr_assert_eq(n_ended, 4);
	for (int i = 0; i < 4; i++)
		cr_assert(!ops[i].busy);
}
