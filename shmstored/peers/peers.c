/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peers.c: see peers.h: addresses, who is connected, services.
 *
 * Both daemons of a pair may connect to each other. One connection stays: that which the daemon
 * with the lesser name made; of two that the same daemon made, the later, since the earlier is what
 * a daemon left that died. Both sides decide this alike.
 */
#include "peers.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <utlist.h>

#include "config.h"
#include "host.h"
#include "log.h"
#include "peerlink.h"
#include "socket.h"

#define MS        UINT64_C(1000000)
#define TICK_MS   200u
#define AGAIN_MS  1000u /* until an address is tried again that led to no peer */
#define STRANGERS 64u   /* connections that have not said HELLO */

struct peers {
	struct host *host;
	char name[PEERS_NAME + 1];
	struct peersecret secret;
	bool has_secret;
	struct socket local; /* of this host */
	int tcp_fd;
	struct loop_op accept_op, tick_op;
	struct peers_address *addresses;
	struct peer *links;
	struct peers_service *services;
};

struct loop *peers_loop(const struct peers *p)
{
	return p->host->loop;
}

const char *peers_own_name(const struct peers *p)
{
	return p ? p->name : "";
}

/* ---- services -------------------------------------------------------------------------------- */

struct peers_service *peers_service_of(const struct peers *p, uint16_t type)
{
	struct peers_service *s = p->services;

	while (s && (type < s->first || type > s->last))
		s = s->next;
	return s;
}

struct peer *peers_next(const struct peers *p, const struct peer *prev)
{
	struct peer *l = prev ? prev->next : p ? p->links : NULL;

	while (l && (!l->up || l->closing))
		l = l->next;
	return l;
}

struct peer *peers_find(const struct peers *p, const char *name)
{
	struct peer *l = NULL;

	while ((l = peers_next(p, l)) != NULL && strcmp(l->name, name) != 0)
		;
	return l;
}

void peers_add(struct peers *p, struct peers_service *s)
{
	if (!p)
		return;
	LL_PREPEND(p->services, s);
	for (struct peer *l = peers_next(p, NULL); l; l = peers_next(p, l))
		s->up(s, l);
}

void peers_remove(struct peers *p, struct peers_service *s)
{
	if (p)
		LL_DELETE(p->services, s);
}

/* ---- who comes and goes ---------------------------------------------------------------------- */

static bool is_name(const char *name)
{
	size_t n = 0;

	for (; name[n]; n++)
		if ((unsigned char)name[n] <= ' ' || (unsigned char)name[n] >= 0x7f ||
		    name[n] == ',')
			return false;
	return n > 0 && n <= PEERS_NAME;
}

/* The name of the daemon that made the connection. */
static const char *maker(const struct peer *l)
{
	return l->to ? l->of->name : l->name;
}

/* NULL, or why the connection is not wanted. */
static const char *unwelcome(struct peer *l, const struct peerlink_hello *h)
{
	struct peer *other;

	if (!is_name(h->name))
		return "it says no name";
	if (strcmp(h->name, l->of->name) == 0)
		return "it has this daemon's own name: peers { name = ... } has to differ";
	other = peers_find(l->of, h->name);
	strcpy(l->name, h->name); /* it ends within it */
	if (l->to)
		strcpy(l->to->name, h->name);
	if (!other)
		return NULL;
	if (strcmp(maker(l), maker(other)) > 0)
		return "";
	peerlink_drop(other, NULL);
	return NULL;
}

bool peers_greeted(struct peer *l, const struct peerlink_hello *h)
{
	const char *why = unwelcome(l, h);

	if (why) {
		if (*why)
			log_say(LOG_WARNING, LOG_FIELDS(.object = l->to ? l->to->text : h->name),
				"another daemon is not taken as a peer: %s", why);
		return false;
	}
	if (l->uid == PEERLINK_ANYBODY)
		l->uid = h->uid;
	l->up = true;
	if (l->to)
		l->to->said = false;
	log_say(LOG_INFO, LOG_FIELDS(.object = l->name), "connected to another daemon, of user %u",
		l->uid);
	for (struct peers_service *s = l->of->services; s; s = s->next)
		s->up(s, l);
	return true;
}

void peers_left(struct peer *l)
{
	struct peers *p = l->of;

	DL_DELETE(p->links, l);
	if (l->to && !l->up)
		l->to->not_before_ms = loop_clock_ms() + AGAIN_MS;
	if (l->to && l->to->link == l)
		l->to->link = NULL;
	for (struct peers_service *s = l->up ? p->services : NULL; s; s = s->next)
		if (s->down)
			s->down(s, l);
}

static bool is_stranger(const struct peer *l)
{
	return !l->up && !l->to;
}

static unsigned count(const struct peers *p, bool strangers)
{
	const struct peer *l;
	unsigned n = 0;

	DL_FOREACH(p->links, l)
	{
		n += is_stranger(l) == strangers;
	}
	return n;
}

/* The more it is to go: it has the most companions from its source, and has said nothing. The
 * list has the oldest first. */
static unsigned weight_of(const struct peers *p, const struct peer *l)
{
	const struct peer *other;
	unsigned n = 0;

	DL_FOREACH(p->links, other)
	{
		n += is_stranger(other) && source_same(other->from, l->from);
	}
	return 2 * n + !peerlink_has_spoken(l);
}

/* One stranger goes, so that the next can come: they may come as fast as they like, and a
 * peer's HELLO takes a moment. */
static void drop_a_stranger(struct peers *p)
{
	struct peer *l, *worst = NULL;
	unsigned most = 0;

	DL_FOREACH(p->links, l)
	{
		unsigned weight = is_stranger(l) ? weight_of(p, l) : 0;

		if (weight > most) {
			worst = l;
			most = weight;
		}
	}
	if (worst)
		peerlink_drop(worst, NULL);
}

/* Whose process is at the other end of a Unix socket? -1: that is not
 * known, or it is not welcome. */
static int64_t user_of(int fd)
{
	struct ucred cred;
	socklen_t size = sizeof(cred);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &size) < 0)
		return -1;
	return cred.uid == 0 || cred.uid == geteuid() || geteuid() == 0 ? (int64_t)cred.uid : -1;
}

static void welcome(struct peers *p, int fd)
{
	const struct peersecret *secret = p->tcp_fd >= 0 ? &p->secret : NULL;
	int64_t uid = secret ? (int64_t)PEERLINK_ANYBODY : user_of(fd);
	struct sockaddr_storage from = {.ss_family = AF_UNSPEC};
	socklen_t size = sizeof(from);
	struct peer *l;
	int one = 1;

	/* The loop accepts sockets that block, where that is how it reads them itself. */
	if (uid < 0 || fcntl(fd, F_SETFL, O_RDWR | O_NONBLOCK) < 0 ||
	    count(p, false) >= PEERS_LINKS ||
	    getpeername(fd, (struct sockaddr *)&from, &size) < 0) {
		close(fd);
		return;
	}
	if (count(p, true) >= STRANGERS)
		drop_a_stranger(p);
	if (secret)
		(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	l = peerlink_new(p, fd, secret, (uint32_t)uid, false, NULL);
	if (!l)
		return;
	l->from = source_of((const struct sockaddr *)&from);
	DL_APPEND(p->links, l);
}

/* ---- addresses ------------------------------------------------------------------------------- */

/* "10.0.0.1:4711", "[::1]:4711". 0, -EINVAL. */
static int parse_tcp(const char *text, struct sockaddr_storage *ret, socklen_t *ret_size)
{
	const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
				       .ai_socktype = SOCK_STREAM};
	const char *colon = strrchr(text, ':');
	struct addrinfo *found;
	char host[64];
	size_t n = colon ? (size_t)(colon - text) : 0;

	if (n >= 2 && text[0] == '[' && text[n - 1] == ']') {
		text++;
		n -= 2;
	}
	if (!n || n >= sizeof(host))
		return -EINVAL;
	memcpy(host, text, n);
	host[n] = '\0';
	if (getaddrinfo(host, colon + 1, &hints, &found) != 0)
		return -EINVAL;
	memcpy(ret, found->ai_addr, found->ai_addrlen);
	*ret_size = found->ai_addrlen;
	freeaddrinfo(found);
	return 0;
}

static int parse_address(const char *text, struct sockaddr_storage *ret, socklen_t *ret_size)
{
	struct sockaddr_un *u = (struct sockaddr_un *)(void *)ret;

	*ret = (struct sockaddr_storage){0};
	if (*text != '/')
		return parse_tcp(text, ret, ret_size);
	if (strlen(text) >= sizeof(u->sun_path))
		return -EINVAL;
	u->sun_family = AF_UNIX;
	strcpy(u->sun_path, text);
	*ret_size = sizeof(*u);
	return 0;
}

/* A connection to it begins. 0, -errno. */
static int begin_connect(struct peers *p, struct peers_address *to)
{
	struct sockaddr_storage a;
	socklen_t size;
	int r = parse_address(to->text, &a, &size), fd, one = 1;
	bool local = a.ss_family == AF_UNIX, waits;
	int64_t uid = PEERLINK_ANYBODY;

	if (r < 0)
		return r;
	fd = socket(a.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (!local)
		(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	r = connect(fd, (const struct sockaddr *)&a, size) < 0 ? -errno : 0;
	waits = r == -EINPROGRESS;
	if ((r < 0 && !waits) || (local && (uid = user_of(fd)) < 0)) {
		close(fd);
		return r < 0 ? r : -EPERM;
	}
	to->link = peerlink_new(p, fd, local ? NULL : &p->secret, (uint32_t)uid, waits, to);
	if (!to->link)
		return -ENOMEM;
	DL_APPEND(p->links, to->link);
	return 0;
}

static void try_to_connect(struct peers *p, struct peers_address *to)
{
	int r;

	if (to->link || loop_clock_ms() < to->not_before_ms ||
	    (*to->name && peers_find(p, to->name)) || count(p, false) >= PEERS_LINKS)
		return;
	r = begin_connect(p, to);
	if (r < 0 && !to->said)
		log_say(LOG_NOTICE, LOG_FIELDS(.object = to->text, .error = r),
			"no other daemon answers there so far; it is tried again");
	to->said |= r < 0;
}

/* ---- events ---------------------------------------------------------------------------------- */

static void gone(void *object)
{
	struct peers *p = object;
	struct peers_address *to;

	while ((to = p->addresses) != NULL) {
		p->addresses = to->next;
		free(to->text);
		free(to);
	}
	socket_close(&p->local);
	if (p->tcp_fd >= 0)
		close(p->tcp_fd);
	explicit_bzero(&p->secret, sizeof(p->secret));
	free(p);
}

static int listening_fd(const struct peers *p)
{
	return p->tcp_fd >= 0 ? p->tcp_fd : p->local.fd;
}

static void on_accept(struct loop_op *op, int result, UNUSED unsigned flags)
{
	if (result >= 0)
		welcome(CONTAINER_OF(op, peers, accept_op), result);
	/* If it has ended, on_tick() starts it again. */
}

static void on_tick(struct loop_op *op, int result, UNUSED unsigned flags)
{
	struct peers *p = CONTAINER_OF(op, peers, tick_op);
	uint64_t now = loop_clock_ms();
	struct peer *l, *next;

	if (result < 0)
		return;
	DL_FOREACH_SAFE(p->links, l, next)
	{
		peerlink_tick(l, now, p->host->config->peers.timeout_ns / MS);
	}
	for (struct peers_address *to = p->addresses; to; to = to->next)
		try_to_connect(p, to);
	if (listening_fd(p) >= 0 && !p->accept_op.busy)
		(void)loop_accept(p->host->loop, &p->accept_op, listening_fd(p));
}

/* ---- its life -------------------------------------------------------------------------------- */

static int listen_tcp(struct peers *p, const char *text)
{
	struct sockaddr_storage a;
	socklen_t size;
	int one = 1, r = parse_address(text, &a, &size);

	if (r < 0)
		return r;
	p->tcp_fd = socket(a.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (p->tcp_fd < 0)
		return -errno;
	(void)setsockopt(p->tcp_fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(p->tcp_fd, (const struct sockaddr *)&a, size) < 0 ||
	    listen(p->tcp_fd, (int)STRANGERS) < 0)
		return -errno;
	return 0;
}

static int add_addresses(struct peers *p, const char *list)
{
	while (list && *list) {
		size_t n = strcspn(list, ", ");
		struct peers_address *to = n ? calloc(1, sizeof(*to)) : NULL;

		if (to) {
			to->text = strndup(list, n);
			LL_PREPEND(p->addresses, to);
		}
		if (n && (!to || !to->text))
			return -ENOMEM;
		list += n + (list[n] != '\0');
	}
	return 0;
}

static int check_addresses(const struct peers *p, const char **ret_why)
{
	struct sockaddr_storage a;
	socklen_t size;

	for (const struct peers_address *to = p->addresses; to; to = to->next) {
		*ret_why = "connect: an address is a path of a socket, or as 10.0.0.2:9478";
		if (parse_address(to->text, &a, &size) < 0)
			return -EINVAL;
		*ret_why = "connect: other hosts need a secret-file";
		if (*to->text != '/' && !p->has_secret)
			return -EINVAL;
	}
	return 0;
}

static int begin(struct peers *p, const struct config_peers *c, const char **ret_why)
{
	int r;

	*ret_why = "its name is 1 to 63 printable characters, no blank, no comma";
	if (c->name)
		snprintf(p->name, sizeof(p->name), "%s", c->name);
	else if (gethostname(p->name, sizeof(p->name) - 1) < 0)
		return -errno;
	r = is_name(p->name) ? 0 : -EINVAL;
	if (r == 0 && c->secret_file) {
		r = peersecret_read(c->secret_file, &p->secret, ret_why);
		p->has_secret = r == 0;
	}
	if (r == 0) {
		*ret_why = "out of memory";
		r = add_addresses(p, c->connect);
	}
	if (r == 0)
		r = check_addresses(p, ret_why);
	if (r < 0 || !c->listen)
		return r;
	*ret_why = "listen: an address of another host needs a secret-file";
	if (*c->listen != '/' && !p->has_secret)
		return -EINVAL;
	*ret_why = "listen: the address cannot be had";
	return *c->listen == '/' ? socket_open_stream(&p->local, c->listen)
				 : listen_tcp(p, c->listen);
}

int peers_new(struct host *h, struct peers **ret)
{
	const struct config_peers *c = &h->config->peers;
	struct peers *p;
	const char *why;
	int r;

	*ret = NULL;
	if (!c->listen && !c->connect)
		return 0;
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->host = h;
	p->tcp_fd = -1;
	p->local = SOCKET_NULL;
	p->accept_op.fn = on_accept;
	p->tick_op.fn = on_tick;
	r = begin(p, c, &why);
	if (r < 0)
		log_say(LOG_ERR,
			LOG_FIELDS(.object = c->listen ? c->listen : c->connect, .error = r),
			"no connection to other daemons: %s", why);
	if (r == 0)
		r = loop_timer(h->loop, &p->tick_op, loop_clock(), TICK_MS * MS);
	if (r < 0) {
		(void)peers_free(p);
		return r;
	}
	*ret = p;
	return 0;
}

struct peers *peers_free(struct peers *p)
{
	if (!p)
		return NULL;
	while (p->links)
		peerlink_drop(p->links, NULL);
	p->services = NULL;
	socket_remove(&p->local);
	loop_release_all(p->host->loop, (struct loop_op *const[]){&p->accept_op, &p->tick_op}, 2,
			 gone, p);
	return NULL;
}
