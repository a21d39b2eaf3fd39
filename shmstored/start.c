/* SPDX-License-Identifier: Apache-2.0 */
/*
 * start.c: the parts of the daemon, started in the order of what they need and
 * stopped the other way round.
 *
 * The socket is opened last: clients find stores and limits already known. At the end it is closed
 * first; then the clients are told, jobs that run are given up, the accounts let go of their locks
 * (from then on stores are alone, and know it), and the loop goes last, since operations of all the
 * others are in flight there until then.
 */
#include "start.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "account.h"
#include "accountquota.h"
#include "actord.h"
#include "admit.h"
#include "arbhost.h"
#include "clocks.h"
#include "config.h"
#include "conn.h"
#include "dispatch.h"
#include "events.h"
#include "host.h"
#include "listener.h"
#include "log.h"
#include "loop.h"
#include "part.h"
#include "preempt.h"
#include "pressure.h"
#include "profiletasks.h"
#include "psi.h"
#include "refused.h"
#include "scanner.h"
#include "stages.h"
#include "tierkeeper.h"
#include "web.h"
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

static int open_profiles(struct host *h)
{
	int r = profiles_new(h, &h->profiles);

	if (r < 0 || !h->profiles)
		return r;
	h->profiletasks = profiletasks_new(h, h->profiles);
	return h->profiletasks ? 0 : -ENOMEM;
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
		r = open_profiles(h);
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
		r = actord->open(h);
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
	h->actord->close(h);
	h->preempt = preempt_free(h->preempt);
	h->admit = admit_free(h->admit);
	h->pressure = pressure_free(h->pressure);
	h->psi = psi_free(h->psi);
	if (h->scanner)
		h->scanner = scanner_free(h->scanner);
	h->profiletasks = profiletasks_free(h->profiletasks);
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
static bool same_base(const struct config_stage *o, const struct config_stage *n)
{
	return o->base_private == n->base_private && o->base_shared == n->base_shared &&
	       o->total == n->total && o->slots == n->slots && o->workers == n->workers;
}

static bool same_peers(const struct config_peers *o, const struct config_peers *n)
{
	return same_text(o->name, n->name) && same_text(o->listen, n->listen) &&
	       same_text(o->connect, n->connect) && same_text(o->secret_file, n->secret_file);
}

static bool needs_restart(const struct host *h, const struct config *n)
{
	const struct config *o = h->config;

	if (!same_text(o->socket, n->socket) || o->http != n->http ||
	    !same_text(o->http_address, n->http_address) || o->http_port != n->http_port ||
	    o->arbiter.enabled != n->arbiter.enabled ||
	    o->pressure.enabled != n->pressure.enabled ||
	    !same_text(o->pressure.proc, n->pressure.proc) || o->n_partitions != n->n_partitions ||
	    (o->profile.strategy.strategy == PROFILE_NONE) !=
		    (n->profile.strategy.strategy == PROFILE_NONE) ||
	    !same_text(o->profile.directory, n->profile.directory) ||
	    !same_base(&o->stage, &n->stage) || !same_peers(&o->peers, &n->peers))
		return true;
	for (size_t i = 0; i < o->n_partitions; i++) {
		if (!config_partition_find(n, o->partitions[i].path))
			return true;
	}
	return false;
}

int host_reload(struct host *h, struct config *config)
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
