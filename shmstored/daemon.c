/* SPDX-License-Identifier: Apache-2.0 */
/*
 * daemon.c: the host daemon, as both of its programs are. This file reads the command line and the
 * configuration, starts the host, and turns signals into what the loop does: SIGHUP reads the
 * configuration again, SIGTERM and SIGINT end in good order, a second one at once.
 *
 * It does not go into the background: a service manager, or a shell's "&", keeps it.
 * Exit status: 0 ended in good order, 1 failed, 2 wrong usage or configuration.
 *
 * The parts are started in the order of what they need and stopped the other way round. The socket
 * is opened last: clients find stores and limits already known. At the end it is closed first; then
 * the clients are told, jobs that run are given up, the accounts let go of their locks (from then
 * on stores are alone, and know it), and the loop goes last, since operations of all the others are
 * in flight there until then.
 */
#include "daemon.h"

#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <shmstore/shmstore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "account.h"
#include "actord.h"
#include "admit.h"
#include "arbhost.h"
#include "clocks.h"
#include "config.h"
#include "conn.h"
#include "dispatch.h"
#include "host.h"
#include "jsonmake.h"
#include "log.h"
#include "loop.h"
#include "preempt.h"
#include "pressure.h"
#include "profiles.h"
#include "refused.h"
#include "report.h"
#include "scanner.h"
#include "stages.h"
#include "tierkeeper.h"
#include "wire.h"

const struct part *const start_parts[] = {&tierkeeper_part, &arbhost_part, &stages_part, NULL};

static int open_accounts(struct host *h)
{
	struct account **last = &h->accounts;
	int r;

	for (size_t i = 0; i < h->config->n_partitions; i++) {
		r = account_open(h, &h->config->partitions[i], last);
		if (r < 0)
			return r;
		last = &(*last)->next;
	}
	return 0;
}

/* Logs the features that this filter or kernel restricts or forbids. */
static void say_refused(void)
{
	struct shms_refusal refused[SHMS_REFUSED_MAX];
	size_t n = shms_refused_list(refused);

	for (size_t i = 0; i < n; i++)
		log_say(refused[i].spared ? LOG_NOTICE : LOG_WARNING, LOG_FIELDS(.error = 0),
			"the system call %s is refused (%s): %s", refused[i].call,
			strerror(refused[i].error), refused[i].without);
}

/* The name in the partition by which its stores find a daemon of their user's own. False: it is too
 * long for them to connect to. */
static bool own_socket(const char *partition, char ret_path[PATH_MAX])
{
	int n = snprintf(ret_path, PATH_MAX, "%s/" WIRE_OWN_SOCKET, partition);

	return n > 0 && (size_t)n < sizeof(((struct sockaddr_un *)0)->sun_path);
}

/* Of several partitions the first one has our socket (config_default_socket()): makes, or removes,
 * the links to it in the others. */
static void link_partitions(const struct host *h, bool make)
{
	const struct config *c = h->config;
	char path[PATH_MAX];

	if (!own_socket(c->partitions[0].path, path) || strcmp(path, c->socket) != 0)
		return;
	for (size_t i = 1; i < c->n_partitions; i++) {
		if (!own_socket(c->partitions[i].path, path))
			continue;
		/* We have the partition's lock: any file of ours there is an earlier daemon's. */
		unlink(path);
		if (make && symlink(c->socket, path) < 0)
			log_say(LOG_WARNING, LOG_FIELDS(.object = path, .error = -errno),
				"the stores of this partition do not find the daemon by "
				"themselves, for want of this symlink; set SHMSTORE_SOCKET=%s for "
				"them",
				c->socket);
	}
}

int host_start(struct host *h, struct config *config, const struct actord *actord)
{
	int r;

	*h = (struct host){
		.epoch = clock_ns(CLOCK_BOOTTIME),
		.started_ns = (int64_t)clock_ns(CLOCK_REALTIME),
		.config = config,
		.dispatch = dispatch,
		.parts = start_parts,
		.actord = actord,
	};
	r = events_new(&h->events);
	if (r == 0)
		r = loop_new(&h->loop);
	if (r == 0)
		r = scanner_new(h->loop, &h->scanner);
	if (r < 0) {
		log_say(LOG_ERR, LOG_FIELDS(.error = r),
			"the daemon's loop and its worker threads cannot be made");
		return r;
	}
	say_refused();
	r = open_accounts(h);
	if (r == 0)
		r = profiles_new(h, &h->profiles);
	if (r < 0)
		return r;
	r = psi_new(h, "", &h->psi);
	if (r < 0)
		log_say(LOG_NOTICE, LOG_FIELDS(.error = r),
			"memory pressure cannot be watched here; all else works");
	r = pressure_new(h, &h->pressure);
	if (r < 0) {
		log_say(LOG_ERR, LOG_FIELDS(.error = r),
			"pressure.enabled is set, and the host's memory cannot be watched");
		return r;
	}
	r = admit_new(h, &h->admit);
	if (r == 0)
		r = preempt_new(h, &h->preempt);
	if (r == 0)
		r = actord->open ? actord->open(h) : 0;
	if (r < 0)
		return r;
	/* Said in the log. That the page's port is taken is no reason to leave
	 * the stores without limits. */
	if (config->http && web_new(h, &h->web) < 0)
		h->web = NULL;
	r = listener_new(h, &h->listener);
	if (r < 0)
		return r;
	link_partitions(h, true);
	events_emit(h->events, EVENT_DAEMON_STARTED, "", NULL);
	log_say(LOG_INFO, LOG_FIELDS(.object = config->socket), "%s %s serves %zu partitions on %s",
		actord->program, shmstore_version(), config->n_partitions, loop_backend(h->loop));
	return 0;
}

void host_stop(struct host *h)
{
	struct account *a;

	h->draining = true;
	if (h->listener)
		link_partitions(h, false);
	h->listener = listener_free(h->listener);
	if (h->loop)
		conn_drop_all(h, "the daemon ends");
	h->web = web_free(h->web);
	if (h->actord->close)
		h->actord->close(h);
	h->preempt = preempt_free(h->preempt);
	h->admit = admit_free(h->admit);
	h->pressure = pressure_free(h->pressure);
	h->psi = psi_free(h->psi);
	if (h->scanner)
		h->scanner = scanner_free(h->scanner);
	h->profiles = profiles_free(h->profiles);
	while ((a = h->accounts) != NULL) {
		h->accounts = a->next;
		account_close(a);
	}
	if (h->loop)
		h->loop = loop_free(h->loop);
	h->events = events_free(h->events);
	h->config = config_free(h->config);
}

static bool same_text(const char *a, const char *b)
{
	return (!a && !b) || (a && b && strcmp(a, b) == 0);
}

/* Compares keys that only a restart can change: a reload that changes them is refused. */
static bool needs_restart(const struct host *h, const struct config *n)
{
	const struct config *o = h->config;
	const struct config_stage *was = &o->stage, *is = &n->stage;

	if (!same_text(o->socket, n->socket) || o->http != n->http ||
	    !same_text(o->http_address, n->http_address) || o->http_port != n->http_port ||
	    o->arbiter.enabled != n->arbiter.enabled ||
	    o->pressure.enabled != n->pressure.enabled ||
	    !same_text(o->pressure.proc, n->pressure.proc) || o->n_partitions != n->n_partitions ||
	    (o->profile.strategy.strategy == PROFILE_NONE) !=
		    (n->profile.strategy.strategy == PROFILE_NONE) ||
	    !same_text(o->profile.directory, n->profile.directory) ||
	    was->base_private != is->base_private || was->base_shared != is->base_shared ||
	    was->total != is->total || was->slots != is->slots || was->workers != is->workers ||
	    !same_text(o->peers.name, n->peers.name) ||
	    !same_text(o->peers.listen, n->peers.listen) ||
	    !same_text(o->peers.connect, n->peers.connect) ||
	    !same_text(o->peers.secret_file, n->peers.secret_file))
		return true;
	for (size_t i = 0; i < o->n_partitions; i++) {
		if (!config_partition_find(n, o->partitions[i].path))
			return true;
	}
	return false;
}

/* Applies what may change at run time of a newly read configuration, takes it over. 0, -errno
 * (nothing changed). */
static int host_reload(struct host *h, struct config *config)
{
	struct config *old = h->config;
	int r = 0;

	if (needs_restart(h, config)) {
		log_say(LOG_ERR, LOG_FIELDS(.error = -EBUSY),
			"the new configuration changes socket, http, arbiter.enabled, "
			"pressure.enabled, pressure.proc-root, the list of partitions, whether and "
			"where profiles are kept, which other daemons there are, or what a worker "
			"has outside of stages, which needs a restart; nothing was changed");
		return -EBUSY;
	}
	h->config = config;
	for (struct account *a = h->accounts; a; a = a->next)
		a->config = config_partition_find(config, a->config->path);
	for (struct account *a = h->accounts; a; a = a->next) {
		int one = accountquota_reload(a, config_partition_find(old, a->config->path));

		if (one < 0) {
			log_say(LOG_ERR, LOG_FIELDS(.object = a->path, .error = one),
				"not all of the new limits could be set");
			r = one;
		}
		PART_EACH(a, reload, a);
	}
	pressure_reload(h->pressure);
	log_set_level(config->log_level);
	config_free(old);
	return r;
}

/* ---- the program ----------------------------------------------------------------------------- */

#define EXIT_USAGE     2
#define PARTITIONS_MAX 64u

struct arguments {
	const char *config; /* NULL = the default file */
	const char *socket; /* NULL = the configuration's */
	const char *partitions[PARTITIONS_MAX];
	size_t n_partitions;
	const char *host_total; /* NULL = the configuration's */
	bool check;
};

struct daemon {
	const struct actord *actord;
	struct arguments args;
	struct host host;
	int signal_fd;
	struct loop_op signal_op, watchdog;
};

enum {
	KEY_CHECK = 256,
	KEY_HOST_TOTAL,
};

static const struct argp_option options[] = {
	{"config", 'c', "FILE", 0, "read FILE and FILE.d/*.conf instead of " CONFIG_FILE, 0},
	{"socket", 's', "PATH", 0, "listen on PATH", 0},
	{"partition", 'p', "PATH", 0,
	 "watch PATH (may be repeated); the configuration's partitions are left out", 0},
	{"check-config", KEY_CHECK, NULL, 0,
	 "read the configuration, say what is wrong with it, and exit", 0},
	{"host-total", KEY_HOST_TOTAL, "SIZE", 0,
	 "take the host for one of SIZE bytes, of which registered processes and partitions use "
	 "what they have (pressure.host-total)",
	 0},
	{NULL, 0, NULL, 0, NULL, 0},
};

/* NOLINTNEXTLINE(readability-non-const-parameter): argp's type */
static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct arguments *a = &((struct daemon *)state->input)->args;

	switch (key) {
	case 'c':
		a->config = arg;
		return 0;
	case 's':
		a->socket = arg;
		return 0;
	case 'p':
		if (a->n_partitions == PARTITIONS_MAX)
			argp_error(state, "more than %u partitions", PARTITIONS_MAX);
		a->partitions[a->n_partitions++] = arg;
		return 0;
	case KEY_CHECK:
		a->check = true;
		return 0;
	case KEY_HOST_TOTAL:
		a->host_total = arg;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "%s: no arguments are expected", arg);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static void print_version(FILE *stream, struct argp_state *state)
{
	fprintf(stream, "%s %s\n", state->name, shmstore_version());
}

static const struct argp argp = {
	options, parse,
	"",      "The host daemon of shmstore: watches, accounts, grants quota, and tells.",
	NULL,    NULL,
	NULL};

/* The configuration as the command line changes it. 0, or -errno, said on standard error. */
static int read_config(const struct daemon *d, struct config **ret)
{
	const struct arguments *a = &d->args;
	char *error = NULL;
	struct config *c = NULL;
	int r = config_read(a->config, &c, &error);

	if (r == 0 && a->n_partitions)
		r = config_set_partitions(c, a->partitions, a->n_partitions);
	if (r == 0 && a->socket) {
		free(c->socket);
		c->socket = strdup(a->socket);
		r = c->socket ? 0 : -ENOMEM;
	}
	if (r == 0)
		r = config_default_socket(c);
	if (r == 0 && a->host_total &&
	    (config_parse_size(a->host_total, 0, &c->pressure.host_total) < 0 ||
	     !c->pressure.host_total)) {
		r = -EINVAL;
		error = strdup("--host-total takes a size, as 128MiB");
	}
	if (r == 0 && !d->actord->has_peers && (c->peers.listen || c->peers.connect)) {
		r = -EINVAL;
		error = strdup("section peers names other daemons, which shmstored does not know: "
			       "run shmstore-actord in its place");
	}
	if (r < 0) {
		log_say(LOG_ERR, LOG_FIELDS(.error = error ? 0 : r), "%s",
			error ? error : "the configuration cannot be read");
		free(error);
		config_free(c);
		return r;
	}
	*ret = c;
	return 0;
}

/* ---- what systemd is told (sd_notify(3)): without $NOTIFY_SOCKET nothing happens ---- */

static void on_watchdog(UNUSED struct loop_op *op, int result, UNUSED unsigned flags)
{
	if (result >= 0)
		sd_notify(0, "WATCHDOG=1");
}

/*
 * Feeds the watchdog, where there is one, from a timer of the loop at a third of the time allowed,
 * and from nothing else: it says that events are handled, not that the process exists. 0, -errno.
 */
static int feed_watchdog(struct daemon *d)
{
	uint64_t timeout_us = 0, interval_ns;
	int r = sd_watchdog_enabled(0, &timeout_us);

	if (r <= 0)
		return r;
	interval_ns = timeout_us * 1000 / 3;
	d->watchdog.fn = on_watchdog;
	return loop_timer(d->host.loop, &d->watchdog, loop_clock(), interval_ns ? interval_ns : 1);
}

static void notify(const char *state, const char *status)
{
	int r = sd_notifyf(0, "%s\nSTATUS=%s", state, status);

	if (r < 0)
		log_say(LOG_WARNING, LOG_FIELDS(.error = r),
			"the service manager could not be told: %s", status);
}

static void notify_ready(const struct daemon *d)
{
	char status[64];

	snprintf(status, sizeof(status), "%zu partitions", d->host.config->n_partitions);
	notify("READY=1", status);
}

/* ---- signals ---- */

static void reload(struct daemon *d)
{
	struct json_object *fields = jsonmake_new();
	struct config *c;
	int r;

	/* With the time: Type=notify-reload of systemd 253 wants it. */
	sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64 "\nSTATUS=Reading the configuration",
		   loop_clock() / 1000);
	r = read_config(d, &c);
	if (r == 0) {
		r = host_reload(&d->host, c);
		if (r < 0 && d->host.config != c)
			config_free(c);
	}
	if (r == 0)
		log_say(LOG_INFO, LOG_FIELDS(.error = 0), "the configuration was read again");
	else
		log_say(LOG_ERR, LOG_FIELDS(.error = r), "the configuration stays as it was");
	jsonmake_text(fields, "outcome", r == 0 ? "reloaded" : "refused");
	events_emit(d->host.events, EVENT_CONFIG, "", fields);
	notify_ready(d);
}

static void on_signal(struct loop_op *op, int result, UNUSED unsigned flags)
{
	struct daemon *d = CONTAINER_OF(op, daemon, signal_op);
	struct signalfd_siginfo info;

	if (result < 0)
		return;
	while (read(d->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		if (info.ssi_signo == SIGHUP) {
			reload(d);
		} else {
			d->host.draining = true;
			loop_stop(d->host.loop);
			return;
		}
	}
}

static int run(struct daemon *d, struct config *c, const sigset_t *set)
{
	int r = host_start(&d->host, c, d->actord);

	if (r == 0)
		r = feed_watchdog(d);
	if (r == 0) {
		d->signal_fd = signalfd(-1, set, SFD_CLOEXEC | SFD_NONBLOCK);
		d->signal_op.fn = on_signal;
		r = d->signal_fd < 0
			    ? -errno
			    : loop_poll(d->host.loop, &d->signal_op, d->signal_fd, POLLIN, false);
		if (r < 0)
			log_say(LOG_ERR, LOG_FIELDS(.error = r),
				"signals cannot be watched, so that nobody could end "
				"the daemon in good order: it ends now");
	}
	if (r == 0) {
		notify_ready(d);
		r = loop_run(d->host.loop);
		if (r == 0)
			r = d->host.failed;
		if (r < 0)
			log_say(LOG_CRIT, LOG_FIELDS(.error = r), "the loop failed");
	}
	notify("STOPPING=1", r == 0 ? "ending in good order" : "failed");
	/* From here on a second signal ends us at once. */
	signal(SIGHUP, SIG_IGN);
	sigprocmask(SIG_UNBLOCK, set, NULL);
	host_stop(&d->host);
	if (d->signal_fd >= 0)
		close(d->signal_fd);
	return r == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

int daemon_main(int argc, char **argv, const struct actord *actord)
{
	struct daemon d = {.actord = actord, .signal_fd = -1};
	struct rlimit files;
	struct config *c;
	sigset_t set;

	argp_program_version_hook = print_version;
	argp_err_exit_status = EXIT_USAGE;
	argp_parse(&argp, argc, argv, 0, NULL, &d);
	log_init(LOG_INFO);
	if (read_config(&d, &c) < 0)
		return EXIT_USAGE;
	if (d.args.check) {
		if (d.args.config || access(CONFIG_FILE, F_OK) == 0)
			printf("%s: ok\n", d.args.config ? d.args.config : CONFIG_FILE);
		else
			printf("%s: ok: it is not there, and the defaults hold\n", CONFIG_FILE);
		config_free(c);
		return fclose(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
	}
	log_set_level(c->log_level);
	/* Before any thread is there: they inherit the mask. */
	sigemptyset(&set);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	/* ulimit -f: the write fails, and what was to be written is not */
	signal(SIGXFSZ, SIG_IGN);
	/* As many descriptors as the kernel lets us have: clients, pidfds, pages. */
	if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
		files.rlim_cur = files.rlim_max < 65536 ? files.rlim_max : 65536;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	return run(&d, c, &set);
}
