/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_peers.c: what other daemons may say to one in this process: its real connections, actors,
 * copies and profiles, with a place that has an actor and takes the orders that it gets.
 *
 * Input: a byte of mode, then messages, each a byte of who says it and what (which of two
 * peers: OTHER; its type), two of size, and so many bytes. They become a message of that type:
 * its fixed part is as long as it has to be, and a bulk's description says how much of it
 * follows. RAW: they go as they are, as a piece of a stream. Invariants: each message that the
 * daemon sends is well-formed; the place is never told that it is at fault; when a peer has gone,
 * its connection is gone, too, and others are welcome.
 */
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "account.h"
#include "actors.h"
#include "fakehost.h"
#include "log.h"
#include "peerlink.h"
#include "scratch.h"

enum {
	NO_HELLO = 1,
	NO_PLACE = 2,
	REFUSES = 4, /* the place does nothing that it is told */
};
#define RAW     0x80u
#define OTHER   0x40u
#define N_PEERS 2u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

/* How long the fixed part of a message is, and whether more follows. */
#define CALLS 0 /* no message: a client calls the actor whose name the bytes are */
static const struct kind {
	uint16_t type;
	size_t fixed;
	bool more;
} kinds[] = {
	{PEERS_PING, 0, false},
	{PEERS_BULK, sizeof(struct peerlink_bulk), true},
	{PEERS_CHUNK, sizeof(struct peerlink_chunk), true},
	{PEERS_ANSWER, sizeof(struct peerlink_answer), false},
	{ACTORS_FREE, sizeof(struct actors_say_free), false},
	{ACTORS_LIVE, sizeof(struct actors_say), false},
	{ACTORS_DEAD, sizeof(struct actors_say), false},
	{ACTORS_COPY, sizeof(struct actors_say), false},
	{ACTORS_GONE, sizeof(struct actors_say), false},
	{ACTORS_RECOVER, sizeof(struct actors_say), false},
	{ACTORS_CALL, sizeof(struct actors_say_call), true},
	{ACTORS_ANSWER, sizeof(struct actors_say_answer), true},
	{PEERS_HELLO, sizeof(struct peerlink_hello), false},
};

static struct config_partition partition = {.survey_interval_ns = UINT64_C(3600000000000),
					    .ghost_age_ns = UINT64_C(3600000000000)};
static char none[] = "none", own_name[] = "m";
static struct config config = {.max_clients = 16,
			       .max_clients_per_user = 16,
			       .hello_timeout_ns = UINT64_C(3600000000000),
			       .output_max = 1 << 20,
			       .credit = 1 << 20,
			       .credit_idle_ns = UINT64_C(3600000000000),
			       .profile = {.strategy = {.strategy = PROFILE_PEAK},
					   .directory = none,
					   .interval_ns = 1000000,
					   .save_ns = UINT64_C(3600000000000),
					   .max_kinds = 4},
			       .peers = {.name = own_name,
					 .timeout_ns = UINT64_C(3600000000000),
					 .sync_ns = 1000000,
					 .copies = {.on = true,
						    .num = {.all = true},
						    .strategy = CKPT_ALL,
						    .frequency_ns = 1000000,
						    .retry = 1},
					 .recover_ns = 1000000},
			       .partitions = &partition,
			       .n_partitions = 1};
static struct host h;
static unsigned long n_answered, n_ended;

/* The other end of one connection to the daemon. */
struct end {
	int fd;
	bool greeted, over;
	size_t used;
	char in[2 * PEERLINK_MOST];
};
static struct end ends[N_PEERS];

static void report(void)
{
	fprintf(stderr, "accepted: %lu messages of the daemon, %lu connections that it ended\n",
		n_answered, n_ended);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	log_init(-1);
	ENSURE(asprintf(&config.peers.listen, "%s/peers", scratch_dir(NULL)) > 0);
	fakehost_begin_whole(&h, &config, "a");
	atexit(report);
	return 0;
}

static void turn(void)
{
	fakehost_turn(&h, 3, 0);
}

/* ---- the place ------------------------------------------------------------------------------- */

static void next_order(int fd)
{
	ENSURE(fakehost_tell(fd, WIRE_ACTOR_NEXT, 4, &(struct wire_actor_next){0}, NULL, 0));
}

static int begin_place(void)
{
	const struct conn_peer me = {getpid(), getuid(), getgid()};
	const struct wire_actor_place place = {.free = 1 << 20};
	const struct wire_actor_born born = {.step_ms = 1000,
					     .suspend_ms = 1000,
					     .at_once = 1,
					     .level = ACTOR_ALWAYS,
					     .flags = WIRE_ACTOR_CAN_SAVE | WIRE_ACTOR_CAN_LOAD |
						      WIRE_ACTOR_NEW};
	int fd;

	fakehost_connect(&h, &me, &fd);
	fakehost_hello(fd);
	fakehost_register(fd, h.accounts->uuid, "stores/a");
	ENSURE(fakehost_tell(fd, WIRE_ACTOR_PLACE, 3, &place, "p", 1));
	ENSURE(fakehost_tell(fd, WIRE_ACTOR_BORN, 3, &born, "a", 1));
	next_order(fd);
	return fd;
}

static void carry_out(int fd, const struct fakehost_packet *packet, bool refuses)
{
	struct wire_actor_order order;
	struct wire_actor_done done;

	memcpy(&order, packet->body, sizeof(order));
	done = (struct wire_actor_done){.step = order.step,
					.request = order.request,
					.how = refuses ? WIRE_ACTOR_FAILED : WIRE_ACTOR_OK,
					.name = order.name};
	if (order.what != WIRE_ACTOR_STOP && (order.step || order.request))
		ENSURE(fakehost_tell(fd, WIRE_ACTOR_DONE, 5, &done, packet->tail, order.name));
	next_order(fd);
}

static void serve_place(int fd, bool refuses)
{
	struct fakehost_packet packet;
	int type;

	while ((type = fakehost_hear(fd, &packet)) > 0) {
		ENSURE(type != WIRE_ERROR);
		if (type == WIRE_ACTOR_ORDER)
			carry_out(fd, &packet, refuses);
	}
	ENSURE(type == FAKEHOST_NONE);
}

/* ---- peers ----------------------------------------------------------------------------------- */

/* Takes what the daemon said to it. */
static void listen_to(struct end *e)
{
	struct peerlink_header head;
	size_t at = 0;
	ssize_t n;

	if (e->over)
		return;
	n = recv(e->fd, e->in + e->used, sizeof(e->in) - e->used, MSG_DONTWAIT);
	e->over = n == 0;
	n_ended += e->over;
	e->used += n > 0 ? (size_t)n : 0;
	for (; e->used - at >= sizeof(head); at += head.size) {
		memcpy(&head, e->in + at, sizeof(head));
		ENSURE(head.size >= sizeof(head) && head.size <= PEERLINK_MOST && !head.reserved);
		if (e->used - at < head.size)
			break;
		ENSURE(e->greeted || head.type == PEERS_HELLO);
		e->greeted = true;
		n_answered += head.type > PEERS_PING;
	}
	memmove(e->in, e->in + at, e->used - at);
	e->used -= at;
}

static void say(const struct end *e, uint16_t type, const void *body, size_t n)
{
	const struct peerlink_header head = {.size = (uint32_t)(sizeof(head) + n), .type = type};
	const struct iovec parts[] = {{(void *)(size_t)&head, sizeof(head)},
				      {(void *)(size_t)body, n}};
	const struct msghdr m = {.msg_iov = (struct iovec *)(size_t)parts, .msg_iovlen = 2};

	(void)sendmsg(e->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* A name below the daemon's own, and one above: of two connections the one
 * that the lesser made stays. */
static void greet(const struct end *e)
{
	struct peerlink_hello hello = {.magic = PEERLINK_MAGIC,
				       .version = PEERLINK_VERSION,
				       .uid = getuid(),
				       .name = {e == ends ? 'b' : 'z'}};

	say(e, PEERS_HELLO, &hello, sizeof(hello));
}

static void connect_peer(struct end *e)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};

	*e = (struct end){.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
	strcpy(to.sun_path, config.peers.listen);
	ENSURE(e->fd >= 0 && connect(e->fd, (const struct sockaddr *)&to, sizeof(to)) == 0);
	for (unsigned i = 0; !e->greeted && i < 1000; i++) {
		fakehost_turn(&h, 1, i < 3 ? 0 : 1000000);
		listen_to(e);
	}
	ENSURE(e->greeted);
}

/* A type that is none has nothing that is fixed. */
static struct kind kind_of(uint16_t type)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (kinds[i].type == type)
			return kinds[i];
	return (struct kind){type, 0, true};
}

static void say_as(const struct end *e, const struct kind *k, const uint8_t *data, size_t size)
{
	static uint8_t body[PEERS_BODY];
	size_t n = size < k->fixed || !k->more ? k->fixed : size;

	memset(body, 0, k->fixed);
	memcpy(body, data, size < n ? size : n);
	if (k->type == PEERS_BULK)
		((struct peerlink_bulk *)(void *)body)->n_meta =
			(uint32_t)(n - sizeof(struct peerlink_bulk));
	say(e, k->type, body, n);
}

static void call(int place, const uint8_t *name, size_t n)
{
	const struct wire_actor_call c = {
		.name = (uint32_t)(n > WIRE_ACTOR_NAME ? WIRE_ACTOR_NAME : n)};

	/* A client says no names that are none: what becomes of one that does is fuzz_wire's. */
	for (size_t i = 0; i < c.name; i++)
		if (name[i] <= ' ' || name[i] >= 0x7f)
			return;
	if (place >= 0 && c.name)
		(void)fakehost_tell(place, WIRE_ACTOR_CALL, 6, &c, name, c.name);
}

/* One message of the input; returns what is left of it, NULL = nothing. */
static const uint8_t *send_next(int place, const uint8_t *data, const uint8_t *end)
{
	const struct end *e;
	struct kind kind;
	size_t size;

	if (end - data < 3)
		return NULL;
	e = &ends[*data & OTHER ? 1 : 0];
	kind = kind_of(*data & (OTHER - 1));
	size = data[1] | (size_t)data[2] << 8;
	if (size > (size_t)(end - data) - 3)
		size = (size_t)(end - data) - 3;
	if (*data & RAW)
		(void)send(e->fd, data + 3, size, MSG_DONTWAIT | MSG_NOSIGNAL);
	else if (kind.type == CALLS)
		call(place, data + 3, size);
	else
		say_as(e, &kind, data + 3, size);
	return data + 3 + size;
}

/* ---- one input ------------------------------------------------------------------------------- */

static void look(int place, bool refuses)
{
	turn();
	for (size_t i = 0; i < N_PEERS; i++)
		listen_to(&ends[i]);
	if (place >= 0)
		serve_place(place, refuses);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *end = data + size;
	unsigned n = 0;
	uint8_t mode;
	int place;

	if (!size)
		return 0;
	mode = *data++;
	place = mode & NO_PLACE ? -1 : begin_place();
	for (size_t i = 0; i < N_PEERS; i++) {
		connect_peer(&ends[i]);
		if (!(mode & NO_HELLO))
			greet(&ends[i]);
	}
	look(place, mode & REFUSES);
	while (data && data < end) {
		data = send_next(place, data, end);
		if (++n % 2 == 0)
			look(place, mode & REFUSES);
	}
	look(place, mode & REFUSES);
	look(place, mode & REFUSES);
	for (size_t i = 0; i < N_PEERS; i++)
		close(ends[i].fd);
	if (place >= 0)
		close(place);
	for (unsigned i = 0; (h.n_conns || peers_next(h.peers, NULL)) && i < 1000; i++)
		turn();
	ENSURE(h.n_conns == 0 && !peers_next(h.peers, NULL) && h.failed == 0);
	return 0;
}
