/* SPDX-License-Identifier: Apache-2.0 */
/* storm_calls.c: what a worker of the storm calls, and checks: one function for
 * each operation on objects. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "content.h"
#include "storm.h"
#include "storm_worker.h"

int worker_do_put(struct worker *w, enum storm_op op, unsigned key)
{
	char name[400];
	size_t size = worker_key_of(key, name);
	bool replace = op == OP_REPLACE || (op == OP_CREATE && worker_pick(w, 2));
	unsigned flags =
		(replace ? SHMSTORE_REPLACE : 0) | (worker_pick(w, 8) ? 0 : SHMSTORE_CHECKSUM);
	struct content c = {++w->st->shared->next_seed, worker_random_size(w)};
	bool held = worker_book(w, key)->now != 0;
	if (replace || !held)
		worker_will_be(w, key, c.seed);
	int rc = op == OP_CREATE ? content_create(w->s, name, size, c, flags)
				 : content_put(w->s, name, size, c, flags);
	worker_is_now(w, key, rc == 0);
	if (worker_excused(w, rc))
		return 0;
	if (held && !replace ? rc != -EEXIST : rc != 0)
		return worker_bad(w, storm_op_name[op], key, rc, held ? "held" : "not held");
	return 0;
}

int worker_do_abort(struct worker *w, unsigned key)
{
	char name[400];
	size_t size = worker_key_of(key, name);
	uint64_t sizes[1] = {worker_random_size(w)};
	struct shmstore_writer *writer = NULL;
	int rc = shmstore_create(w->s, name, size, 10, sizes, 1, SHMSTORE_REPLACE, &writer);
	if (worker_excused(w, rc))
		return 0;
	if (rc < 0)
		return worker_bad(w, "create", key, rc, NULL);
	unsigned char *bytes = shmstore_writer_buffer(writer, 0, NULL);
	for (uint64_t i = 0; i < sizes[0]; i += 4096)
		bytes[i] = 0xaa;
	shmstore_abort(writer);
	return 0;
}

int worker_do_get(struct worker *w, unsigned key)
{
	uint64_t seed = 0;
	int rc = worker_look_up(w, key, &seed);
	if (rc != 0)
		return rc < 0 ? -1 : 0;
	return seed == worker_book(w, key)->now
		       ? 0
		       : worker_bad(w, "get found another object under", key, 0, NULL);
}

/* Checks one held view and puts another one in its place. */
int worker_do_view(struct worker *w, unsigned key)
{
	struct held *h = &w->held[worker_pick(w, STORM_VIEWS)];
	if (h->view) {
		struct content c = {0, 0};
		const char *why = content_check(h->view, &c);
		if (why || c.seed != h->seed)
			return worker_bad(w, "an old view changed", key, 0,
					  why ? why : "another seed");
		h->view = shmstore_view_unref(h->view);
	}
	char name[400];
	size_t size = worker_key_of(key, name);
	int rc = shmstore_get(w->s, name, size, worker_pick(w, 2) ? SHMSTORE_COW : 0, &h->view);
	if ((rc == -ENOENT && worker_book(w, key)->now == 0) ||
	    ((rc != -ENOSPC || w->st->options->disk) && worker_excused(w, rc)))
		return 0;
	h->seed = worker_book(w, key)->now;
	return rc < 0 ? worker_bad(w, "get", key, rc, NULL) : 0;
}

int worker_do_alias(struct worker *w, unsigned key)
{
	struct held *h = &w->held[worker_pick(w, STORM_VIEWS)];
	if (!h->view)
		return 0;
	struct iovec iov[2];
	size_t n = shmstore_view_n_buffers(h->view), header_size;
	for (size_t i = 0; i < n && i < 2; i++) {
		uint64_t size;
		iov[i].iov_base = shmstore_view_buffer(h->view, i, &size);
		iov[i].iov_len = size;
	}
	const void *header = shmstore_view_header(h->view, &header_size);
	char name[400];
	size_t size = worker_key_of(key, name);
	worker_will_be(w, key, h->seed);
	int rc = shmstore_put(w->s, name, size, header, header_size, n ? iov : NULL, n,
			      SHMSTORE_REPLACE);
	worker_is_now(w, key, rc == 0);
	return rc < 0 && !worker_excused(w, rc) ? worker_bad(w, "alias", key, rc, NULL) : 0;
}

/* To another user through the daemon, which may be away just now. An object that we have of
 * another user can be linked again by that user only. */
int worker_do_handoff(struct worker *w, unsigned key)
{
	const struct storm_options *o = w->st->options;
	unsigned to = worker_pick(w, STORM_WORKERS);
	struct pollfd pfd = {.fd = w->st->mailbox[to][1], .events = POLLOUT};
	uid_t uid = storm_uid(o, to);
	bool other = uid != storm_uid(o, w->id);
	int rc;

	if (to == w->id || (other && !o->daemon) || poll(&pfd, 1, 0) != 1)
		return 0;
	char name[400];
	size_t size = worker_key_of(key, name);
	struct storm_mail mail = {.seed = worker_book(w, key)->now,
				  .expiry_ms = storm_now_ms() + STORM_LEASE_MS,
				  .donor = w->id,
				  .opened = w->st->shared->n_opened[w->id]};
	unsigned flags = o->disk && worker_pick(w, 2) ? SHMSTORE_AS_IS : 0;
	rc = other ? shmstore_handoff_to(w->s, name, size, uid, STORM_LEASE_MS, &mail.ticket)
		   : shmstore_handoff_flags(w->s, name, size, STORM_LEASE_MS, flags, &mail.ticket);
	if ((rc == -ENOENT && mail.seed == 0) || worker_excused(w, rc) ||
	    (rc == -EPERM && o->n_users > 1))
		return 0;
	if (rc == -EDQUOT && other) /* the inbox is full */
		return 0;
	/* On a busy host, or behind somebody who was stopped with the file's lock: it had ended
	 * when the daemon, or we, looked. */
	if (rc == -ESTALE && storm_now_ms() + 1 >= mail.expiry_ms) {
		w->st->shared->n_stale++;
		return 0;
	}
	if (rc < 0)
		return worker_bad(w, other ? "handoff to another user" : "handoff", key, rc,
				  shmstore_error_detail());
	/* A full mailbox: the lease ends unused. */
	send(w->st->mailbox[to][1], &mail, sizeof(mail), MSG_DONTWAIT | MSG_NOSIGNAL);
	return 0;
}

int worker_do_adopt(struct worker *w, unsigned key)
{
	struct storm_mail mail;
	if (recv(w->st->mailbox[w->id][0], &mail, sizeof(mail), MSG_DONTWAIT) !=
	    (ssize_t)sizeof(mail))
		return 0;
	char name[400];
	size_t size = worker_key_of(key, name);
	worker_will_be(w, key, mail.seed);
	int rc = shmstore_adopt(w->s, name, size, &mail.ticket, SHMSTORE_REPLACE);
	worker_is_now(w, key, rc == 0);
	/* A process that opens a dead donor's store again may end its leases, where
	 * there is no room otherwise. */
	if (rc == -ESTALE && (storm_now_ms() + 1 >= mail.expiry_ms ||
			      w->st->shared->n_opened[mail.donor] != mail.opened)) {
		w->st->shared->n_stale++;
		return 0;
	}
	/* A long key needs a page for itself; a packed object under another key is a copy. */
	if ((rc != -ENOSPC || key % 3 == 0 || w->st->options->pack_max) && worker_excused(w, rc))
		return 0;
	if (rc < 0)
		return worker_bad(w, "adopt of a good ticket under", key, rc, mail.ticket.path);
	return worker_do_get(w, key);
}

int worker_do_delete(struct worker *w, unsigned key)
{
	char name[400];
	size_t size = worker_key_of(key, name);
	bool held = worker_book(w, key)->now != 0;
	worker_will_be(w, key, 0);
	int rc = shmstore_delete(w->s, name, size);
	worker_is_now(w, key, rc == 0);
	if (worker_excused(w, rc))
		return 0;
	if (held ? rc != 0 : rc != -ENOENT)
		return worker_bad(w, "delete", key, rc, held ? "held" : "not held");
	return 0;
}

int worker_do_peek(struct worker *w, unsigned key)
{
	char store[16], name[400];
	unsigned whose = worker_pick(w, STORM_WORKERS);
	if (storm_uid(w->st->options, whose) != storm_uid(w->st->options, w->id))
		return 0;
	storm_name(whose, store);
	size_t size = worker_key_of(key, name);
	struct shmstore_options options = SHMSTORE_OPTIONS_INIT;
	options.flags = SHMSTORE_OPEN_READONLY;
	struct shmstore *s = NULL;
	int rc = shmstore_open(w->p, store, &options, &s);
	if (rc == -ENOENT)
		return 0;
	if (rc < 0)
		return worker_bad(w, "opening a peer's store read-only", key, rc, NULL);
	struct content c;
	const char *why = NULL;
	rc = content_get(s, name, size, &c, &why);
	shmstore_close(s);
	if (rc < 0 && rc != -ENOENT &&
	    !((rc != -ENOSPC || w->st->options->disk) && worker_excused(w, rc)))
		return worker_bad(w, "get from a peer's store", key, rc,
				  why ? why : shmstore_error_detail());
	return 0;
}

/* Leases keep an object where it is, and the names of others may be at work just now. */
int worker_do_demote(struct worker *w, unsigned key)
{
	char name[400];
	size_t size = worker_key_of(key, name);
	int rc = shmstore_demote(w->s, name, size, 0);
	bool held = worker_book(w, key)->now != 0;
	/* A long key needs a page for itself, and the object may have been handed over to one: not
	 * the disk's path, but the sentence. */
	if (rc == -ENOSPC && !*shmstore_error_path() &&
	    strstr(shmstore_error_detail(), "long key")) {
		w->st->shared->n_enospc++;
		return 0;
	}
	if (rc != -ENOSPC && worker_excused(w, rc))
		return 0;
	if (held ? rc != 0 && rc != -EPERM : rc != -ENOENT)
		return worker_bad(w, "demote", key, rc, shmstore_error_detail());
	return 0;
}

int worker_do_promote(struct worker *w, unsigned key, bool pin)
{
	char name[400];
	size_t size = worker_key_of(key, name);
	int rc =
		pin ? shmstore_pin(w->s, name, size, worker_pick(w, 8) == 0)
		    : shmstore_promote(w->s, name, size, worker_pick(w, 2) ? SHMSTORE_NO_EVICT : 0);
	bool held = worker_book(w, key)->now != 0;
	/* The sticky bit is its owner's to set. */
	if (worker_excused(w, rc) || (pin && rc == -EPERM && w->st->options->n_users > 1))
		return 0;
	if (held ? rc != 0 : rc != -ENOENT)
		return worker_bad(w, pin ? "pin" : "promote", key, rc, shmstore_error_detail());
	return 0;
}

int worker_do_evict(struct worker *w)
{
	struct shmstore_evict what = SHMSTORE_EVICT_INIT;
	struct shmstore_evict_report report = {.size = sizeof(report)};
	what.bytes = 1 + worker_next_random(&w->random) % (16u << 20);
	what.n_threads = worker_pick(w, 3);
	int rc = shmstore_partition_evict(w->p, &what, &report);
	if ((rc < 0 && !worker_excused(w, rc)) || /* pinned meanwhile */
	    (report.error && report.error != -EPERM && !worker_excused(w, report.error)))
		return storm_fail(w->st, "worker %u: evict: %d, of an object: %d (%s)", w->id, rc,
				  report.error, shmstore_error_detail());
	return 0;
}
