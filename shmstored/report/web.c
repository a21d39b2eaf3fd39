/* SPDX-License-Identifier: Apache-2.0 */
/*
 * web.c: libmicrohttpd under the loop: the socket, its epoll descriptor polled as one
 * operation, its timeouts as another.
 *
 * libmicrohttpd runs without threads of its own: it does what is ready when it is called and
 * returns. A client that sends or reads slowly keeps a connection and at most CONNECTION_MEMORY
 * bytes, until CONNECTION_SECONDS went by without a byte; it keeps nobody waiting. A client that is
 * late with a request's headers goes earlier, at once if all places are taken.
 * A response is made at once, from what the loop's thread owns; a large one takes milliseconds. So
 * one is made in a turn of the loop, and after it there is a pause of PAUSE_FACTOR times what it
 * took: clients get at most a tenth of the loop, however fast they ask, and requests on the socket
 * wait for one response at most. Requests that come meanwhile are suspended and queue, in their
 * order. The timer of one second is also the measure of the loop's lateness (loop.h).
 *
 * Ownership: web_free() ends libmicrohttpd at once, but the memory only when the loop
 * has given back its operations.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "config.h"
#include "host.h"
#include "log.h"
#include "loop.h"
#include "report.h"
#include "socket.h"

#define CONNECTION_SECONDS 10u
#define CONNECTION_MEMORY  (32u * 1024)
#define BACKLOG            64
#define PAUSE_FACTOR       9u
#define PAUSE_MOST_NS      UINT64_C(250000000)
#define SECOND_NS          UINT64_C(1000000000)

/* One request, from its headers to its end. */
struct request {
	struct request *next; /* in the queue */
	struct MHD_Connection *connection;
};

/*
 * The connections of HTTP: where each is from, and since when it owes a request's headers. A
 * connection is only shut down here: libmicrohttpd closes it.
 *
 * There are VISITORS_MOST of them. When the last place is taken, one that owes headers has
 * to go, so that the next finds a place: of the source that has the most connections, the
 * one that owes them for the longest. A connection has little time for its first headers,
 * and more between two requests.
 */
#define VISITORS_MOST 64u

#define FIRST_NS UINT64_C(3000000000)  /* for the first headers */
#define NEXT_NS  UINT64_C(10000000000) /* for the next ones */

struct visitor {
	int fd;
	bool here, asks,
		/* asks: its headers are there, and the answer is under way;
		 * asked: it has had an answer */
		asked;
	bool sent_away;
	struct source from;
	uint64_t since_ns; /* of owing headers */
};
struct visitors {
	struct visitor all[VISITORS_MOST];
	unsigned n;
};

struct web {
	struct host *host;
	struct MHD_Daemon *daemon;
	struct web_context context;
	struct lateness lateness;
	struct visitors visitors;
	struct loop_op poll_op; /* of libmicrohttpd's epoll descriptor */
	struct loop_op wake_op; /* when libmicrohttpd wants to be called */
	struct loop_op tick_op;
	struct loop_op pause_op;
	bool answered;        /* in this turn of the loop */
	bool place_free;      /* the last place has become free */
	struct request *turn; /* whose it is; NULL: that of the first to come */
	struct request *queue, **queue_end;
};

static void run(struct web *w);

static bool owes(const struct visitor *one)
{
	return one->here && !one->asks && !one->sent_away;
}

static void send_away(struct visitor *one)
{
	(void)shutdown(one->fd, SHUT_RDWR);
	one->sent_away = true;
}

static unsigned n_from(const struct visitors *v, struct source from)
{
	unsigned n = 0;

	for (unsigned i = 0; i < VISITORS_MOST; i++)
		n += v->all[i].here && source_same(v->all[i].from, from);
	return n;
}

static void make_room(struct visitors *v)
{
	struct visitor *worst = NULL;
	unsigned worst_n = 0;

	for (unsigned i = 0; i < VISITORS_MOST; i++) {
		struct visitor *one = &v->all[i];
		unsigned n = owes(one) ? n_from(v, one->from) : 0;

		if (n > worst_n || (n && n == worst_n && one->since_ns < worst->since_ns)) {
			worst = one;
			worst_n = n;
		}
	}
	if (worst)
		send_away(worst);
}

/* One has come. NULL: there is no place. fd stays whose it is. */
static struct visitor *visitors_come(struct visitors *v, int fd, const struct sockaddr *from,
				     uint64_t now_ns)
{
	unsigned i = 0;

	while (i < VISITORS_MOST && v->all[i].here)
		i++;
	if (i == VISITORS_MOST)
		return NULL;
	v->all[i] = (struct visitor){
		.fd = fd, .here = true, .from = source_of(from), .since_ns = now_ns};
	if (++v->n == VISITORS_MOST)
		make_room(v);
	return &v->all[i];
}

/* Time has passed: ends those that owe headers for too long. */
static void visitors_tick(struct visitors *v, uint64_t now_ns)
{
	for (unsigned i = 0; i < VISITORS_MOST; i++) {
		struct visitor *one = &v->all[i];

		if (owes(one) && now_ns - one->since_ns >= (one->asked ? NEXT_NS : FIRST_NS))
			send_away(one);
	}
	/* All may have asked when the last came, and owe headers since. */
	if (v->n == VISITORS_MOST)
		make_room(v);
}

/* ---- the loop's operations ------------------------------------------------------------------- */

static void start_poll(struct web *w)
{
	const union MHD_DaemonInfo *info = MHD_get_daemon_info(w->daemon, MHD_DAEMON_INFO_EPOLL_FD);
	int r = info ? loop_poll(w->host->loop, &w->poll_op, info->epoll_fd, POLLIN, true)
		     : -EINVAL;

	if (r < 0)
		log_say(LOG_ERR, LOG_FIELDS(.error = r),
			"HTTP: the socket is no longer watched; HTTP is off");
}

static void on_poll(struct loop_op *op, int result, UNUSED unsigned flags)
{
	struct web *w = CONTAINER_OF(op, web, poll_op);

	if (result == -ECANCELED)
		return;
	run(w);
	start_poll(w);
}

static void on_wake(struct loop_op *op, int result, unsigned flags)
{
	struct web *w = CONTAINER_OF(op, web, wake_op);

	(void)result; /* cancelled because it has to come earlier: run() sets it anew */
	if (!(flags & LOOP_MORE))
		run(w);
}

static void on_tick(struct loop_op *op, int result, UNUSED unsigned flags)
{
	struct web *w = CONTAINER_OF(op, web, tick_op);

	if (result != 0)
		return;
	lateness_note(&w->lateness, loop_clock());
	visitors_tick(&w->visitors, loop_clock());
}

/* Sets the timer to when libmicrohttpd wants to be called without anything being ready. */
static void set_wake(struct web *w)
{
	MHD_UNSIGNED_LONG_LONG ms;

	if (MHD_get_timeout(w->daemon, &ms) != MHD_YES)
		return;
	w->wake_op.fn = on_wake;
	/* An earlier call than is needed finds nothing to do and sets it anew. */
	if (loop_timer_by(w->host->loop, &w->wake_op, loop_clock() + ms * 1000000) < 0)
		log_say(LOG_WARNING, LOG_FIELDS(.error = -ENOMEM),
			"HTTP: no timer; slow clients stay longer");
}

/* Lets the first that waits go on: libmicrohttpd calls for it again when it runs next. */
static void resume(struct web *w)
{
	struct request *first = w->queue;

	w->turn = first;
	w->queue = first->next;
	if (!w->queue)
		w->queue_end = &w->queue;
	MHD_resume_connection(first->connection);
}

static void on_pause(struct loop_op *op, int result, UNUSED unsigned flags)
{
	struct web *w = CONTAINER_OF(op, web, pause_op);

	if (result == 0)
		run(w);
}

static void pause_after(struct web *w, uint64_t took_ns)
{
	uint64_t pause_ns =
		took_ns * PAUSE_FACTOR < PAUSE_MOST_NS ? took_ns * PAUSE_FACTOR : PAUSE_MOST_NS;

	w->pause_op.fn = on_pause;
	if (loop_timer(w->host->loop, &w->pause_op, loop_clock() + pause_ns, 0) == 0)
		return;
	while (w->queue) /* no pause is to be had: nobody is to wait for its end */
		resume(w);
	w->turn = NULL;
}

static void run(struct web *w)
{
	uint64_t begin_ns = loop_clock();

	w->answered = false;
	w->turn = NULL;
	if (!w->pause_op.busy && w->queue)
		resume(w);
	do { /* it watches its socket again only when it is called after a place has become free */
		w->place_free = false;
		if (MHD_run(w->daemon) != MHD_YES)
			log_say(LOG_WARNING, LOG_FIELDS(.error = 0),
				"HTTP: libmicrohttpd failed; tried again");
	} while (w->place_free);
	if ((w->answered || w->queue) && !w->pause_op.busy)
		pause_after(w, loop_clock() - begin_ns);
	set_wake(w);
}

/* ---- libmicrohttpd's calls ------------------------------------------------------------------- */

/* NULL: it came when there was no place. */
static struct visitor *visitor_of(struct MHD_Connection *connection)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

	return info ? info->socket_context : NULL;
}

static void on_connection(void *arg, struct MHD_Connection *connection, void **state,
			  enum MHD_ConnectionNotificationCode code)
{
	struct visitor *visitor = *state;
	struct web *w = arg;

	if (code == MHD_CONNECTION_NOTIFY_STARTED)
		*state = visitors_come(
			&w->visitors,
			MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)
				->connect_fd,
			MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS)
				->client_addr,
			loop_clock());
	else if (visitor) {
		visitor->here = false;
		w->visitors.n--;
	}
	w->place_free |= code == MHD_CONNECTION_NOTIFY_CLOSED && w->visitors.n == VISITORS_MOST - 1;
}

/*
 * libmicrohttpd calls once with the headers, again when a body was read, and again after it was
 * suspended. An answer to the first call ends the connection: right for what has a body, whose
 * bytes nobody wants; the others keep theirs for the next request.
 */
static enum MHD_Result on_request(void *arg, struct MHD_Connection *connection, const char *url,
				  const char *method, const char *version, UNUSED const char *data,
				  UNUSED size_t *size, void **state)
{
	struct visitor *visitor = visitor_of(connection);
	struct web *w = arg;
	struct request *r = *state;

	if (visitor)
		visitor->asks = true;
	if (web_has_body(connection, method))
		return web_answer(&w->context, connection, url, method, version);
	if (!r) {
		r = calloc(1, sizeof(*r));
		if (!r)
			return MHD_NO;
		r->connection = connection;
		*state = r;
		return MHD_YES;
	}
	if (w->answered || w->pause_op.busy || (w->turn && w->turn != r)) {
		r->next = NULL;
		*w->queue_end = r;
		w->queue_end = &r->next;
		MHD_suspend_connection(connection);
		return MHD_YES;
	}
	w->answered = true;
	return web_answer(&w->context, connection, url, method, version);
}

static void on_completed(void *arg, struct MHD_Connection *connection, void **state,
			 UNUSED enum MHD_RequestTerminationCode code)
{
	struct visitor *visitor = visitor_of(connection);
	struct web *w = arg;

	if (visitor) {
		visitor->asks = false;
		visitor->asked = true;
		visitor->since_ns = loop_clock();
	}
	if (w->turn == *state)
		w->turn = NULL;
	free(*state); /* it is not in the queue: what is suspended does not end */
	*state = NULL;
}

static __attribute__((format(printf, 2, 0))) void on_message(void *arg, const char *format,
							     va_list list)
{
	char text[256];
	size_t n;

	vsnprintf(text, sizeof(text), format, list);
	n = strlen(text);
	if (n && text[n - 1] == '\n')
		text[n - 1] = '\0';
	/* Until it runs, that is why it does not start. */
	log_say(((struct web *)arg)->daemon ? LOG_DEBUG : LOG_ERR, LOG_FIELDS(.error = 0),
		"HTTP: %s", text);
}

/* ---- the socket ------------------------------------------------------------------------------ */

static bool is_loopback(const struct sockaddr *address)
{
	const struct sockaddr_in *v4 = (const void *)address;
	const struct sockaddr_in6 *v6 = (const void *)address;

	return address->sa_family == AF_INET ? ntohl(v4->sin_addr.s_addr) >> 24 == 127
					     : IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

static int listen_at(const struct addrinfo *at, const char **ret_what)
{
	const int on = 1;
	int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), r;

	*ret_what = "socket() failed";
	if (fd < 0)
		return -errno;
	if ((*ret_what = "setsockopt() failed",
	     setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0) &&
	    (*ret_what = "bind() failed", bind(fd, at->ai_addr, at->ai_addrlen) == 0) &&
	    (*ret_what = "listen() failed", listen(fd, BACKLOG) == 0))
		return fd;
	r = -errno;
	if (r == -EADDRINUSE || r == -EACCES)
		*ret_what = "choose another port";
	close(fd);
	return r;
}

/* The service manager's listening socket takes precedence over address and port. */
static int take_socket(bool *ret_loopback)
{
	struct sockaddr_storage address = {.ss_family = AF_UNSPEC};
	socklen_t size = sizeof(address);
	int fd = handed_socket(HANDED_TCP);

	if (fd >= 0 && getsockname(fd, (struct sockaddr *)&address, &size) == 0)
		*ret_loopback = is_loopback((const struct sockaddr *)&address);
	return fd;
}

/* A numeric address: a name would have to be looked up, and could become another one. */
static int open_socket(const struct config *config, bool *ret_loopback, const char **ret_what)
{
	const struct addrinfo hints = {
		.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE,
		.ai_family = AF_UNSPEC,
		.ai_socktype = SOCK_STREAM,
	};
	struct addrinfo *found;
	char port[8];
	int fd = take_socket(ret_loopback);

	*ret_what = "the address is not a numeric one";
	if (fd != -ENOENT)
		return fd;
	snprintf(port, sizeof(port), "%u", (unsigned)config->http_port);
	if (getaddrinfo(config->http_address, port, &hints, &found) != 0)
		return -EINVAL;
	fd = listen_at(found, ret_what);
	*ret_loopback = is_loopback(found->ai_addr);
	freeaddrinfo(found);
	return fd;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int start(struct web *w, int fd)
{
	uint64_t first_ns = loop_clock() + SECOND_NS;
	int r;

	w->daemon = MHD_start_daemon(
		MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL,
		on_request, w, MHD_OPTION_EXTERNAL_LOGGER, on_message, w,
		MHD_OPTION_NOTIFY_COMPLETED, on_completed, w, MHD_OPTION_NOTIFY_CONNECTION,
		on_connection, w, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
		VISITORS_MOST, MHD_OPTION_CONNECTION_TIMEOUT, CONNECTION_SECONDS,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY, MHD_OPTION_END);
	if (!w->daemon) {
		r = errno ? -errno : -EIO;
		close(fd);
		return r;
	}
	w->poll_op.fn = on_poll;
	w->tick_op.fn = on_tick;
	lateness_init(&w->lateness, first_ns, SECOND_NS);
	r = loop_timer(w->host->loop, &w->tick_op, first_ns, SECOND_NS);
	if (r == 0)
		start_poll(w);
	return r;
}

int web_new(struct host *h, struct web **ret)
{
	struct web *w = calloc(1, sizeof(*w));
	const char *what;
	int fd, r;

	if (!w)
		return -ENOMEM;
	w->host = h;
	w->queue_end = &w->queue;
	w->context = (struct web_context){.host = h, .lateness = &w->lateness};
	fd = open_socket(h->config, &w->context.loopback, &what);
	r = fd < 0 ? fd : start(w, fd);
	if (r < 0) {
		log_say(LOG_ERR, LOG_FIELDS(.object = h->config->http_address, .error = r),
			"HTTP cannot %s port %u: %s; \"enabled = no\" in section http goes without "
			"it",
			fd < 0 ? "listen on" : "serve", (unsigned)h->config->http_port,
			fd < 0 ? what : "libmicrohttpd does not start");
		web_free(w);
		return r;
	}
	r = peeruid_new(&w->context.peeruid);
	if (r < 0)
		log_say(LOG_WARNING, LOG_FIELDS(.error = r),
			"HTTP: the kernel does not tell which user asks; all see totals only");
	*ret = w;
	return 0;
}

struct web *web_free(struct web *w)
{
	if (!w)
		return NULL;
	while (w->queue) /* libmicrohttpd does not end what is suspended */
		resume(w);
	if (w->daemon)
		MHD_stop_daemon(w->daemon);
	w->daemon = NULL;
	w->context.peeruid = peeruid_free(w->context.peeruid);
	loop_release_all(
		w->host->loop,
		(struct loop_op *const[]){&w->poll_op, &w->wake_op, &w->tick_op, &w->pause_op}, 4,
		free, w);
	return NULL;
}
