/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A deleted object that somebody still maps was booked as the pool's when its owner kept
 * the file for recycling: no ghost, no holder to name. It is a ghost for as long as it
 * is held, and the pool's after.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <shmstore/inspect.h>
#include <stdio.h>
#include <unistd.h>

#include "api.h"

#define SIZE ((uint64_t)1 << 20)

struct found {
	int n;
	pid_t pid;
	char key[16];
};

static int note(const struct shmstore_holder *h, void *arg)
{
	struct found *f = arg;

	cr_assert_eq(h->kind, SHMSTORE_HOLD_GHOST);
	cr_assert_leq(h->key_size, sizeof(f->key) - 1);
	f->n++;
	f->pid = h->pid;
	memcpy(f->key, h->key, h->key_size);
	return 0;
}

static struct shmstore_usage reconcile(struct shmstore_partition *p, struct found *f)
{
	struct shmstore_usage u;

	memset(f, 0, sizeof(*f));
	cr_assert_eq(shmstore_partition_reconcile(p, note, f, &u), 0);
	if (scratch_is_mount())
		cr_assert_eq(u.residual, 0);
	return u;
}

Test(recycled_ghost, held_by_a_view_of_another_process)
{
	struct shmstore_partition *p = scratch_partition();
	struct shmstore *s = scratch_store("s");
	struct other o = other_start("o");
	struct shmstore_ticket t;
	struct shmstore_usage u;
	struct found f;

	cr_assert_eq(put_pattern(s, "k", SIZE, 1, 0), 0);
	cr_assert_eq(shmstore_handoff(s, KEY("k"), 60000, &t), 0);
	cr_assert_eq(other_adopt(&o, "theirs", &t), 0);
	cr_assert_eq(other_view(&o, "theirs", SHMSTORE_COW), 0);
	cr_assert_eq(shmstore_delete(s, KEY("k")), 0);
	cr_assert_eq(other_delete(&o, "theirs"), 0);
	u = reconcile(p, &f);
	cr_assert_geq(u.ghosts, SIZE);
	cr_assert_eq(u.pool, 0);
	cr_assert_eq(f.n, 1);
	cr_assert_eq(f.pid, o.pid);
	cr_assert_str_eq(f.key, "theirs");
	cr_assert_eq(other_unview(&o), 0);
	u = reconcile(p, &f);
	cr_assert_eq(u.ghosts, 0);
	cr_assert_geq(u.pool, SIZE);
	cr_assert_eq(f.n, 0);
	cr_assert_eq(other_close(&o), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
	shmstore_partition_unref(p);
}

Test(recycled_ghost, held_by_a_descriptor_and_by_an_own_view)
{
	struct shmstore_partition *p = scratch_partition();
	struct shmstore *s = scratch_store("s");
	struct shmstore_view *v;
	struct shmstore_usage u;
	struct found f;
	char path[SCRATCH_PATH + 64];
	int fd;

	cr_assert_eq(put_pattern(s, "a", SIZE, 1, 0), 0);
	cr_assert_eq(put_pattern(s, "b", SIZE, 2, 0), 0);
	v = get_view(s, "a", 0);
	snprintf(path, sizeof(path), "%s/stores/s/objects/b", scratch_partition_path());
	fd = open(path, O_RDONLY | O_CLOEXEC);
	cr_assert_geq(fd, 0);
	cr_assert_eq(shmstore_delete(s, KEY("a")), 0);
	cr_assert_eq(shmstore_delete(s, KEY("b")), 0);
	u = reconcile(p, &f);
	cr_assert_geq(u.ghosts, 2 * SIZE);
	cr_assert_eq(u.pool, 0);
	cr_assert_eq(f.n, 2);
	cr_assert_eq(f.pid, getpid());
	close(fd);
	shmstore_view_unref(v);
	u = reconcile(p, &f);
	cr_assert_eq(u.ghosts, 0);
	cr_assert_geq(u.pool, 2 * SIZE);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
	shmstore_partition_unref(p);
}
