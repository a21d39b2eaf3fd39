/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pressure.c: a timer, and the looks that it causes.
 *
 * The host, cgroups with a limit, and partitions are read in each interval. Processes are read in
 * each interval if memory is near the gate, or if the total is configured, since then used is
 * computed from them; else in each tenth, as far from the gate nothing is decided by them. Cgroups
 * without a limit are read in each tenth, too.
 *
 * With a configured total (pressure.host-total) nothing of the host counts: used is what registered
 * processes have privately, and what the partitions have. An unknown value stays unknown: the gate
 * keeps its state, and no report shows a number.
 */
#include "pressure.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <utlist.h>

#include "account.h"
#include "amount.h"
#include "clocks.h"
#include "config.h"
#include "gate.h"
#include "host.h"
#include "jsonmake.h"
#include "log.h"
#include "loop.h"
#include "memgroup.h"

#define SELDOM     10u /* intervals between two looks at processes, far from the gate */
/* after a sample, another one for the kernel's word: a part of the interval */
#define NOT_SOONER 4u

/*
 * Thresholds, of the configuration and of the size of the memory. A configured threshold goes
 * before the rule's. Each is kept below the one above it, whatever units they have.
 */
#define MS 1000000u

/* A watermark in bytes: configured in bytes, or in parts per million of total; 0: by the rule. */
static int64_t bytes_of(uint64_t said, int64_t by_rule_ppm, int64_t total)
{
	uint64_t ppm = said ? said : (uint64_t)by_rule_ppm;

	if (ppm <= 1000000)
		return ratio_floor(RATIO_PPM(ppm), total);
	return said < (uint64_t)total ? (int64_t)said : total;
}

/*
 * total: the host's bytes, more than 0. -ERANGE: memory may grow within an interval by more than a
 * quarter of it; only ret->rule.max_interval_ms is set.
 */
static int presslimits_compute(const struct config_pressure *c, int64_t total,
			       struct presslimits *ret)
{
	struct presslimits l = {0};
	uint64_t ms = c->interval_ns / MS;
	int r = deltarule_compute(total, (int64_t)c->growth_rate, (int64_t)ms, &l.rule);

	if (r == 0) {
		l.kill = bytes_of(c->kill, l.rule.kill_ppm, total);
		l.gate = MIN(bytes_of(c->gate, l.rule.gate_ppm, total), l.kill);
		l.gate = MAX(l.gate, 1);
		/* by default a tenth of the host lies between gate and low */
		l.low = c->low ? bytes_of(c->low, 0, total) : MAX(l.gate - total / 10, 0);
		l.low = MIN(l.low, l.gate - 1);
	}
	if (r == 0 || r == -ERANGE)
		*ret = l;
	return r;
}

static const struct config_pressure *config_of(const struct pressure *p)
{
	return &p->host->config->pressure;
}

const char *pressure_source(const struct pressure *p)
{
	return p->reading.n_levels ? p->reading.levels[p->reading.tightest].path : "host-total";
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool seen_before(const struct host *h, const struct account *a, dev_t dev)
{
	struct stat st;

	for (const struct account *b = h->accounts; b && b != a; b = b->next)
		if (fstat(b->fd, &st) == 0 && st.st_dev == dev)
			return true;
	return false;
}

/* Counts each file system once. */
static struct amount read_store(const struct host *h)
{
	struct amount sum = amount_of(0);
	struct statvfs fs;
	struct stat st;

	for (const struct account *a = h->accounts; a; a = a->next) {
		if (fstat(a->fd, &st) < 0 || fstatvfs(a->fd, &fs) < 0)
			return AMOUNT_UNKNOWN;
		if (a == h->accounts || !seen_before(h, a, st.st_dev))
			sum = amount_add(
				sum, amount_of(amount_product((int64_t)(fs.f_blocks - fs.f_bfree),
							      (int64_t)fs.f_frsize)));
	}
	return sum;
}

/* Is some of the host's swap in use? If that is not known, yes. */
static bool swap_in_use(const struct memsource_reading *r)
{
	const struct memsource_level *l = r->n_levels ? &r->levels[0] : NULL;
	int64_t swap[2] = {0, 0};

	for (size_t i = 0; l && i < l->n_terms; i++) {
		if (strcmp(l->terms[i].name, "SwapTotal") == 0)
			swap[0] = l->terms[i].bytes;
		else if (strcmp(l->terms[i].name, "SwapFree") == 0)
			swap[1] = l->terms[i].bytes;
	}
	return !l || swap[0] > swap[1];
}

static void read_host(struct pressure *p, const struct config_pressure *c)
{
	struct memsource_config source = {
		.proc = c->proc, .cgroup = c->cgroup, .count_swap = c->swap};
	const struct memlimit_use *use;
	/* Cgroups without a limit are seldom read. A limit counts from the look that sees it. */
	bool again = !c->host_total && p->reading.n_levels && p->n_samples % SELDOM;

	p->total = p->used = AMOUNT_UNKNOWN;
	if (!again)
		memsource_deinit(&p->reading);
	if (c->host_total) {
		p->total = amount_of((int64_t)c->host_total);
	} else if ((again ? memsource_again : memsource_read)(&source, &p->reading) == 0) {
		use = &p->reading.levels[p->reading.tightest].use;
		p->total = use->total;
		p->used = use->used;
	}
}

static void read_all(struct pressure *p, const struct config_pressure *c)
{
	read_host(p, c);
	p->store = read_store(p->host);
	pressprocs_look(&p->procs, p->mono_ns);
	if (c->host_total || p->n_samples % SELDOM == 0 || !p->limited || !p->used.known ||
	    p->used.bytes >= p->limits.low) {
		p->procs.swap = swap_in_use(&p->reading);
		for (struct pressproc *proc = p->procs.list; proc; proc = proc->next)
			pressprocs_read_one(&p->procs, proc);
		p->procs_mono_ns = p->mono_ns;
	}
	p->private = amount_of(0); /* unknown if that of one process is */
	for (const struct pressproc *proc = p->procs.list; proc; proc = proc->next)
		p->private = amount_add(p->private, proc->private);
	if (c->host_total)
		p->used = amount_add(p->private, p->store);
	p->other = amount_subtract(p->used, amount_add(p->private, p->store));
}

/* ---- thresholds ------------------------------------------------------------------------------ */

/*
 * Sets the limits by total as it is now: a limit that shrinks counts at once. If the rule has no
 * limits for it, the last ones stay, which are no shares of it any more.
 */
static void set_limits(struct pressure *p)
{
	const struct config_pressure *c = config_of(p);
	struct gate_config config;
	struct presslimits l;
	int r = p->total.known && p->total.bytes > 0 ? presslimits_compute(c, p->total.bytes, &l)
						     : -EINVAL;

	if (r == -ERANGE && !p->too_fast)
		log_say(LOG_ERR, LOG_FIELDS(.error = -ERANGE),
			"pressure: at %" PRIu64 " bytes a second more than a quarter of %" PRId64
			" bytes may fill within an interval of %" PRIu64
			" ms; set pressure.interval to %" PRId64
			"ms or less, or growth-rate to what is measured",
			c->growth_rate, p->total.bytes, c->interval_ns / 1000000,
			l.rule.max_interval_ms);
	p->too_fast = r == -ERANGE;
	if (r < 0)
		return;
	p->limits = l;
	p->limited = true;
	config = (struct gate_config){.high = l.gate,
				      .low = l.low,
				      .window = c->window,
				      .hold = c->hold,
				      .ramp0 = c->ramp,
				      .rampmax = c->ramp_max};
	r = gate_set(&p->gate, &config);
	if (r == 0 && !p->gated)
		p->gate_since_ns = p->time_ns;
	p->gated = p->gated || r == 0;
}

/* ---- what is told ---------------------------------------------------------------------------- */

/* key: what has changed. */
static void tell_memory(const struct pressure *p, const char *key)
{
	struct json_object *fields = jsonmake_new();

	jsonmake_text(fields, "source", pressure_source(p));
	jsonmake_flag(fields, "above", p->above);
	memjson_amount(fields, "total", p->total);
	memjson_amount(fields, "used", p->used);
	memjson_amount(fields, "gate", p->limited ? amount_of(p->limits.gate) : AMOUNT_UNKNOWN);
	memjson_amount(fields, "kill", p->limited ? amount_of(p->limits.kill) : AMOUNT_UNKNOWN);
	events_emit(p->host->events, EVENT_MEMORY, key, fields);
}

static void note_growth(struct pressure *p, struct amount before, uint64_t before_ns)
{
	struct amount grown = amount_subtract(p->used, before);
	uint64_t ns = p->mono_ns - before_ns;
	int64_t rate;

	if (before_ns && ns >= config_of(p)->interval_ns / 2) {
		p->grown = grown;
		p->grown_ns = ns;
	}
	if (!grown.known || grown.bytes <= 0 || !before_ns || !ns)
		return;
	rate = (int64_t)((double)grown.bytes * 1e9 / (double)ns);
	if (rate <= p->growth_most)
		return;
	p->growth_most = rate;
	if (config_of(p)->growth_rate && (uint64_t)rate > config_of(p)->growth_rate)
		log_say(LOG_WARNING, LOG_FIELDS(.error = 0),
			"memory was filled at %" PRId64
			" bytes a second, which is more than pressure.growth-rate",
			rate);
}

/*
 * Counts the time above the kill threshold, between the looks that saw it begin and end. A look
 * that could not read the use changes nothing.
 */
static void see_kill(struct pressure *p)
{
	bool above = p->used.bytes > p->limits.kill;

	if (!p->used.known || !p->limited || above == p->above)
		return;
	if (above) {
		p->n_above++;
		p->above_mono_ns = p->mono_ns;
	} else {
		p->above_ns += p->mono_ns - p->above_mono_ns;
	}
	p->above = above;
	tell_memory(p, above ? "above" : "below");
}

uint64_t pressure_above_ns(const struct pressure *p)
{
	return p->above_ns + (p->above ? loop_clock() - p->above_mono_ns : 0);
}

static void see_gate(struct pressure *p)
{
	uint64_t n_flips = p->gate.n_flips;
	struct json_object *fields;

	if (!p->gated)
		return;
	gate_sample(&p->gate, p->used);
	if (p->gate.n_flips == n_flips)
		return;
	p->gate_since_ns = p->time_ns;
	fields = jsonmake_new();
	jsonmake_text(fields, "state", p->gate.closed ? "closed" : "open");
	memjson_amount(fields, "used", p->used);
	jsonmake_i64(fields, "u", p->gate.u);
	jsonmake_i64(fields, "high", p->gate.config.high);
	jsonmake_i64(fields, "low", p->gate.config.low);
	events_emit(p->host->events, EVENT_GATE, "gate", fields);
}

/* ---- the timer ------------------------------------------------------------------------------- */

void pressure_look(struct pressure *p)
{
	struct amount total = p->total, used = p->used;
	uint64_t began = clock_ns(CLOCK_THREAD_CPUTIME_ID), before_ns = p->mono_ns;
	char *source = strdup(pressure_source(p));

	p->time_ns = (int64_t)clock_ns(CLOCK_REALTIME);
	p->mono_ns = loop_clock();
	for (struct pressure_watch *w = p->watches; w; w = w->next)
		if (w->before)
			w->before(w);
	read_all(p, config_of(p));
	p->n_samples++;
	p->n_unknown += !p->used.known || !p->total.known;
	set_limits(p);
	note_growth(p, used, before_ns);
	see_kill(p);
	see_gate(p);
	p->last_cost_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - began;
	p->cost_ns += p->last_cost_ns;
	if (p->n_samples == 1 || !amount_equal(total, p->total) || used.known != p->used.known ||
	    (source && strcmp(source, pressure_source(p)) != 0))
		tell_memory(p, "memory");
	free(source);
	for (struct pressure_watch *w = p->watches, *next; w; w = next) {
		next = w->next;
		w->fn(w);
	}
}

static int arm(struct pressure *p)
{
	p->interval_ns = config_of(p)->interval_ns;
	return loop_timer(p->host->loop, &p->timer, loop_clock() + p->interval_ns, p->interval_ns);
}

static void on_timer(struct loop_op *op, int result, unsigned flags)
{
	struct pressure *p = CONTAINER_OF(op, pressure, timer);

	if (result >= 0)
		pressure_look(p);
	if (!(flags & LOOP_MORE) && arm(p) < 0)
		log_say(LOG_ERR, LOG_FIELDS(.error = -ENOMEM),
			"the host's memory is watched no more: no timer is to be had");
}

static void on_event(struct event_sink *sink, UNUSED enum event e, UNUSED uint64_t sequence,
		     UNUSED const char *json, UNUSED size_t n)
{
	struct pressure *p = CONTAINER_OF(sink, pressure, sink);

	if (loop_clock() - p->mono_ns > p->interval_ns / NOT_SOONER)
		pressure_look(p);
}

/* ---- life ------------------------------------------------------------------------------------ */

int pressure_new(struct host *h, struct pressure **ret)
{
	struct pressure *p;
	int r;

	*ret = NULL;
	if (!h->config->pressure.enabled)
		return 0;
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->host = h;
	p->timer.fn = on_timer;
	p->sink = (struct event_sink){.mask = UINT64_C(1) << EVENT_PRESSURE, .fn = on_event};
	p->procs.host = h;
	p->procs.proc = strdup(h->config->pressure.proc ? h->config->pressure.proc : "/proc");
	r = p->procs.proc ? 0 : -ENOMEM;
	if (r == 0) {
		pressure_look(p);
		r = p->too_fast ? -ERANGE : arm(p);
	}
	if (r < 0) {
		pressprocs_deinit(&p->procs);
		memsource_deinit(&p->reading);
		free(p);
		return r;
	}
	events_subscribe(h->events, &p->sink);
	log_say(LOG_INFO, LOG_FIELDS(.object = pressure_source(p)),
		"the host's memory is watched every %" PRIu64 " ms: gate %" PRId64 ", kill %" PRId64
		" of %" PRId64 " bytes",
		p->interval_ns / 1000000, p->limits.gate, p->limits.kill, p->total.bytes);
	*ret = p;
	return 0;
}

struct pressure *pressure_free(struct pressure *p)
{
	if (!p)
		return NULL;
	events_unsubscribe(p->host->events, &p->sink);
	pressprocs_deinit(&p->procs);
	memsource_deinit(&p->reading);
	loop_release(p->host->loop, &p->timer, p);
	return NULL;
}

void pressure_watch(struct pressure *p, struct pressure_watch *w)
{
	LL_APPEND(p->watches, w);
}

void pressure_unwatch(struct pressure *p, struct pressure_watch *w)
{
	if (p->watches)
		LL_DELETE(p->watches, w);
}

void pressure_reload(struct pressure *p)
{
	if (p && p->interval_ns != config_of(p)->interval_ns)
		loop_cancel(p->host->loop,
			    /* on_timer() arms it anew; thresholds are set with the next sample */
			    &p->timer);
}

/* ---- the kernel's word ----------------------------------------------------------------------- */

/*
 * A pressure trigger, polled by the loop. The kernel wakes us at most once per window.
 *
 * The cgroup of the daemon itself says nothing of the workers: what is looked at is the slice above
 * it (system.slice, or a container's root), or the whole host where there is none. A trigger of an
 * unprivileged process must have a window that is a multiple of two seconds: where ours is refused,
 * it is rounded up and tried again.
 */

#define WINDOW_STEP 2000000u /* µs: what the kernel takes from the unprivileged */

struct psi {
	struct host *host;
	struct loop_op op;
	int fd;
	char path[PATH_MAX];
};

static void on_pressure(struct loop_op *op, int result, unsigned flags)
{
	struct psi *p = CONTAINER_OF(op, psi, op);
	struct json_object *fields;
	char text[256];
	double average;
	ssize_t n;

	if (result < 0)
		return;
	if (result & POLLERR) {
		log_say(LOG_WARNING, LOG_FIELDS(.object = p->path),
			"the kernel took the pressure trigger back: no more such events");
		loop_cancel(p->host->loop, op);
		return;
	}
	fields = jsonmake_new();
	jsonmake_text(fields, "source", p->path);
	/* "some avg10=0.12 …": the first line. */
	n = pread(p->fd, text, sizeof(text) - 1, 0);
	text[n > 0 ? n : 0] = '\0';
	if (sscanf(text, "some avg10=%lf", &average) != 1)
		average = 0;
	jsonmake_seconds(fields, "some_avg10", (int64_t)(average * 1e9));
	events_emit(p->host->events, EVENT_PRESSURE, p->path, fields);
	if (!(flags & LOOP_MORE))
		loop_poll(p->host->loop, op, p->fd, POLLPRI, false);
}

static int trigger(struct psi *p, uint64_t stall_us, uint64_t window_us)
{
	char text[64];
	int n = snprintf(text, sizeof(text), "some %llu %llu", (unsigned long long)stall_us,
			 (unsigned long long)window_us);

	p->fd = open(p->path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	if (p->fd < 0)
		return -errno;
	/* With its NUL, as the kernel's own example does. */
	if (write(p->fd, text, (size_t)n + 1) < 0) {
		int r = -errno;

		close(p->fd);
		p->fd = -1;
		return r;
	}
	return 0;
}

static int try_trigger(struct psi *p, const struct config *c)
{
	uint64_t window_us = (c->psi_window_us + WINDOW_STEP - 1) / WINDOW_STEP * WINDOW_STEP;
	int r = trigger(p, c->psi_stall_us, c->psi_window_us);

	if (r == -EINVAL || r == -EPERM)
		r = trigger(p, c->psi_stall_us, window_us);
	return r;
}

/* The memory.pressure of the cgroup above ours: "0::/system.slice/shmstored.service" ->
 * /sys/fs/cgroup/system.slice. -ENOENT: there is none but the root. */
static int slice_path(const char *root, char *ret, size_t size)
{
	char name[PATH_MAX], text[2 * PATH_MAX], group[PATH_MAX];
	FILE *f;
	size_t n;

	snprintf(name, sizeof(name), "%s/proc/self/cgroup", root);
	f = fopen(name, "re");
	if (!f)
		return -errno;
	n = fread(text, 1, sizeof(text), f);
	fclose(f);
	if (!shms_memgroup_path(text, n, 2, group, sizeof(group)) || !shms_memgroup_parent(group) ||
	    !group[1])
		return -ENOENT;
	n = (size_t)snprintf(ret, size, "%s/sys/fs/cgroup%s/memory.pressure", root, group);
	return n >= size ? -ENAMETOOLONG : 0;
}

int psi_new(struct host *h, const char *root, struct psi **ret)
{
	struct psi *p;
	int r;

	*ret = NULL;
	if (!h->config->psi)
		return 0;
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->host = h;
	p->fd = -1;
	p->op.fn = on_pressure;
	r = slice_path(root, p->path, sizeof(p->path));
	if (r == 0)
		r = try_trigger(p, h->config);
	if (r < 0) {
		snprintf(p->path, sizeof(p->path), "%s/proc/pressure/memory", root);
		r = try_trigger(p, h->config);
	}
	if (r == 0)
		r = loop_poll(h->loop, &p->op, p->fd, POLLPRI, false);
	if (r < 0) {
		if (p->fd >= 0)
			close(p->fd);
		free(p);
		return r;
	}
	*ret = p;
	return 0;
}

struct psi *psi_free(struct psi *p)
{
	int fd = p ? p->fd : -1;

	if (!p)
		return NULL;
	loop_release(p->host->loop, &p->op, p);
	close(fd);
	return NULL;
}
