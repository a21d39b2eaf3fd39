/* SPDX-License-Identifier: Apache-2.0 */
/* Processes with views of packed objects that no store has any more, and those that put one. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api.h"
#include "seglook.h"

#define SIZE 3000u

static struct shmstore *open_store(const char *name)
{
	return packing_store(name, 64u << 10, false);
}

struct named {
	struct {
		pid_t pid;
		uint64_t bytes, generation;
		char key[64];
		bool first;
	} rows[64];
	size_t n;
	uint64_t first_bytes;
};

static int name(const struct shmstore_holder *h, void *arg)
{
	struct named *l = arg;

	cr_assert_eq(h->size, sizeof(*h));
	cr_assert_eq(h->kind, SHMSTORE_HOLD_GHOST);
	cr_assert_lt(l->n, 64);
	cr_assert_gt(strlen(h->command), 0);
	cr_assert_not_null(strstr(h->path, "/segments/"));
	cr_assert_eq(h->uid, geteuid());
	/* A segment that has no link any more is a file without a name. */
	cr_assert_eq(h->mapped == SIZE, h->generation != 0);
	cr_assert_eq(h->key != NULL, h->generation != 0);
	l->rows[l->n].pid = h->pid;
	l->rows[l->n].bytes = h->bytes;
	l->rows[l->n].first = h->first;
	l->rows[l->n].generation = h->generation;
	cr_assert_lt(h->key_size, sizeof(l->rows[l->n].key));
	if (h->key)
		memcpy(l->rows[l->n].key, h->key, h->key_size);
	l->n++;
	l->first_bytes += h->first ? h->bytes : 0;
	return 0;
}

/* The sum of the holders' bytes is that of the equation. */
static struct named reconcile(void)
{
	struct shmstore_usage u;
	struct named l = {.n = 0};

	cr_assert_eq(shmstore_partition_reconcile(scratch_partition(), name, &l, &u), 0);
	cr_assert_eq(l.first_bytes, u.ghosts);
	if (scratch_is_mount())
		cr_assert_eq(u.residual, 0);
	return l;
}

static unsigned n_of(const struct named *l, pid_t pid, const char *key)
{
	unsigned n = 0;

	for (size_t i = 0; i < l->n; i++)
		n += l->rows[i].pid == pid && (!key || strcmp(l->rows[i].key, key) == 0);
	return n;
}

static struct shmstore_view *view(struct shmstore *s, const char *key)
{
	struct shmstore_view *v = NULL;

	cr_assert_eq(shmstore_get(s, key, strlen(key), 0, &v), 0);
	return v;
}

static const char LONG_KEY[] = "a key that does not fit into its slot";

Test(reconcile_packed, holder_is_named_with_key_and_bytes)
{
	struct shmstore *s = open_store("a");
	struct shmstore_view *v[3];
	struct named l;

	cr_assert_eq(put_pattern(s, "k", SIZE, 1, 0), 0);
	cr_assert_eq(put_pattern(s, LONG_KEY, SIZE, 2, 0), 0);
	cr_assert_eq(put_pattern(s, "stays", SIZE, 3, 0), 0);
	v[0] = view(s, "k");
	v[1] = view(s, LONG_KEY);
	v[2] = view(s, "stays");
	cr_assert_eq(reconcile().n, 0);
	cr_assert_eq(shmstore_delete(s, KEY("k")), 0);
	cr_assert_eq(shmstore_delete(s, KEY(LONG_KEY)), 0);
	l = reconcile();
	cr_assert_eq(l.n, 2);
	cr_assert(n_of(&l, getpid(), "k") == 1 && n_of(&l, getpid(), LONG_KEY) == 1);
	cr_assert(l.rows[0].first && l.rows[1].first);
	cr_assert(l.rows[0].bytes >= SIZE && l.rows[0].bytes < 2 * SIZE);
	cr_assert_neq(l.rows[0].generation, l.rows[1].generation);
	shmstore_view_unref(v[0]);
	l = reconcile();
	cr_assert(l.n == 1 && n_of(&l, getpid(), LONG_KEY) == 1);
	/* A store that closes gives its names up. Of its last segment the views are left,
	 * which keep it as a whole. */
	cr_assert_eq(shmstore_close(s), 0);
	l = reconcile();
	cr_assert(l.n == 1 && n_of(&l, getpid(), NULL) == 1);
	shmstore_view_unref(v[1]);
	shmstore_view_unref(v[2]);
	cr_assert_eq(reconcile().n, 0);
}

/* The first slot of the store's one segment becomes what a put that has just begun
 * makes of it, or is free again. */
static void write_slot(const char *store, bool writing)
{
	static struct shms_seglook l;
	struct shms_segslot slot;
	struct dirent *e;
	DIR *dir;

	if (writing) {
		dir = opendir(scratch_store_path(store, "segments"));
		cr_assert_not_null(dir);
		while ((e = readdir(dir)) != NULL && e->d_name[0] == '.')
			continue;
		cr_assert_not_null(e);
		cr_assert_eq(shms_seglook_open(dirfd(dir), e->d_name, true, &l), 0);
		closedir(dir);
	}
	slot = shms_segslot_at(&l.segment, 0);
	shms_segword_store(slot.state,
			   shms_segstate_make(writing ? SHMS_SEG_WRITING : SHMS_SEG_FREE, 2));
	if (!writing)
		shms_seglook_close(&l);
}

struct writers {
	unsigned n;
	pid_t pid;
	uint64_t bytes;
};

static int count_writers(const struct shmstore_holder *h, void *arg)
{
	struct writers *w = arg;

	cr_assert_eq(h->kind, SHMSTORE_HOLD_INFLIGHT);
	cr_assert(h->first && !h->key && h->generation && h->mapped == h->bytes);
	w->n++;
	w->pid = h->pid;
	w->bytes += h->bytes;
	return 0;
}

static struct writers writers_now(void)
{
	struct writers w = {.n = 0};
	struct shmstore_usage u;

	cr_assert_eq(shmstore_partition_reconcile(scratch_partition(), count_writers, &w, &u), 0);
	cr_assert_eq(u.inflight, w.bytes, "%llu, %llu of %u", (unsigned long long)u.inflight,
		     (unsigned long long)w.bytes, w.n);
	if (scratch_is_mount())
		cr_assert_eq(u.residual, 0);
	return w;
}

/* The store's process is named, also where another one maps the segment. */
Test(reconcile_packed, who_puts_an_object_is_named)
{
	struct shmstore *s = open_store("a");
	struct other b = other_start("b");
	struct shmstore_ticket t;
	struct writers w;

	cr_assert_eq(put_pattern(s, "k", SIZE, 1, 0), 0);
	cr_assert_eq(put_pattern(s, "stays", SIZE, 1, 0), 0);
	cr_assert_eq(shmstore_handoff(s, KEY("stays"), 60000, &t), 0);
	cr_assert_eq(other_adopt(&b, "stays", &t), 0);
	cr_assert_eq(shmstore_delete(s, KEY("k")), 0);
	cr_assert_eq(writers_now().n, 0);
	write_slot("a", true);
	w = writers_now();
	cr_assert(w.n == 1 && w.pid == getpid() && w.bytes >= SIZE);
	write_slot("a", false);
	cr_assert_eq(writers_now().n, 0);
	cr_assert_eq(other_close(&b), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(reconcile_packed, bytes_of_two_holders_count_once)
{
	struct shmstore *s = open_store("a");
	struct other b = other_start("b");
	struct shmstore_ticket t;
	struct shmstore_view *v;
	struct named l;

	cr_assert_eq(put_pattern(s, "k", SIZE, 1, 0), 0);
	cr_assert_eq(shmstore_handoff(s, KEY("k"), 60000, &t), 0);
	cr_assert_eq(other_adopt(&b, "k", &t), 0);
	cr_assert_eq(other_view(&b, "k", 0), 0);
	v = view(s, "k");
	cr_assert_eq(shmstore_delete(s, KEY("k")), 0);
	cr_assert_eq(reconcile().n, 0, "the other store has it by name");
	cr_assert_eq(other_delete(&b, "k"), 0);
	l = reconcile();
	cr_assert_eq(l.n, 2);
	cr_assert(n_of(&l, getpid(), "k") == 1 && n_of(&l, b.pid, "k") == 1);
	cr_assert_eq(l.rows[0].first + l.rows[1].first, 1);
	cr_assert_eq(l.rows[0].generation, l.rows[1].generation);
	shmstore_view_unref(v);
	l = reconcile();
	cr_assert(l.n == 1 && n_of(&l, b.pid, "k") == 1 && l.rows[0].first);
	cr_assert_eq(other_unview(&b), 0);
	cr_assert_eq(reconcile().n, 0);
	cr_assert_eq(other_close(&b), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

static int receive(int fd, void *ret, size_t size)
{
	return read(fd, ret, size) == (ssize_t)size ? 0 : -1;
}

/* A store with a view of a deleted object, and a child that inherited the view; both wait
 * for the end of *ret_gate. */
static pid_t parent_of_child(int *ret_gate, pid_t *ret_child)
{
	int gate[2], told[2];
	pid_t pid, child;

	scratch_partition();
	cr_assert(pipe(gate) == 0 && pipe(told) == 0);
	pid = fork_bound(60);
	if (pid == 0) {
		struct shmstore *s = open_store("parent");
		struct shmstore_view *v;
		char byte;

		close(gate[1]);
		if (put_pattern(s, "k", SIZE, 1, 0) < 0 || shmstore_get(s, KEY("k"), 0, &v) < 0)
			_exit(1);
		child = fork(); /* it outlives its parent */
		if (child != 0)
			shmstore_view_unref(v);
		if (child != 0 &&
		    (shmstore_delete(s, KEY("k")) < 0 || write(told[1], &child, sizeof(child)) < 0))
			_exit(1);
		(void)receive(gate[0], &byte, 1);
		_exit(0);
	}
	close(gate[0]);
	close(told[1]);
	cr_assert_eq(receive(told[0], ret_child, sizeof(*ret_child)), 0);
	close(told[0]);
	*ret_gate = gate[1];
	return pid;
}

static bool is_gone(void *arg)
{
	return kill(*(pid_t *)arg, 0) < 0;
}

Test(reconcile_packed, child_is_named_and_a_dead_parent_is_not)
{
	struct shmstore *bystander = open_store("bystander");
	struct shmstore_ticket t;
	pid_t child, parent;
	struct named l;
	struct other o;
	int gate;

	parent = parent_of_child(&gate, &child);
	l = reconcile();
	cr_assert(l.n == 2 && n_of(&l, parent, "k") == 1 && n_of(&l, child, "k") == 1);
	cr_assert_eq(kill(parent, SIGKILL), 0);
	cr_assert_eq(waitpid(parent, NULL, 0), parent);
	l = reconcile();
	cr_assert(l.n == 1 && n_of(&l, child, "k") == 1);
	close(gate);
	cr_assert(wait_until(is_gone, &child, 10000));
	cr_assert_eq(shmstore_partition_gc(scratch_partition(), 0, NULL), 0);
	cr_assert_eq(reconcile().n, 0);
	/* A dead process's bits, which nobody has cleared yet, are nobody's view. */
	o = other_start("o");
	cr_assert_eq(put_pattern(bystander, "k", SIZE, 1, 0), 0);
	cr_assert_eq(shmstore_handoff(bystander, KEY("k"), 60000, &t), 0);
	cr_assert_eq(other_adopt(&o, "k", &t), 0);
	cr_assert_eq(other_view(&o, "k", 0), 0);
	cr_assert_eq(other_delete(&o, "k"), 0);
	other_kill(&o);
	cr_assert_eq(shmstore_delete(bystander, KEY("k")), 0);
	l = (struct named){.n = 0};
	cr_assert_eq(shmstore_partition_reconcile(scratch_partition(), name, &l, NULL), 0);
	cr_assert_eq(l.n, 0);
	cr_assert_eq(shmstore_close(bystander), 0);
	ensure_nothing_left();
}

static int add_share(const struct shmstore_store_books *b, void *arg)
{
	*(uint64_t *)arg += b->pss;
	return 0;
}

Test(reconcile_packed, shares_that_do_not_divide_add_up)
{
	struct shmstore *s[7];
	uint64_t sum = 0, linked;

	for (size_t i = 0; i < 7; i++) {
		char name[8];

		snprintf(name, sizeof(name), "s%zu", i);
		s[i] = open_store(name);
		for (unsigned k = 0; k < 20; k++) {
			struct shmstore_ticket t;
			char key[8];

			snprintf(key, sizeof(key), "%u", k);
			if (i == 0) {
				cr_assert_eq(put_pattern(s[0], key, 1, 1, 0), 0);
				continue;
			}
			cr_assert_eq(shmstore_handoff(s[0], KEY(key), 60000, &t), 0);
			cr_assert_eq(shmstore_adopt(s[i], KEY(key), &t, 0), 0);
		}
	}
	linked = 20 * 64;
	cr_assert_eq(shmstore_partition_books(scratch_partition(), add_share, &sum, NULL), 0);
	cr_assert(sum <= linked && sum + 7 > linked, "%llu", (unsigned long long)sum);
	for (size_t i = 0; i < 7; i++)
		cr_assert_eq(shmstore_close(s[i]), 0);
}
