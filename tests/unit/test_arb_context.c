/* SPDX-License-Identifier: Apache-2.0 */
/* Tasks and contexts: who is meant, who is bound, and what ends it: unbinding, a thread's end, a
 * task's, the daemon's, a fork. */
#include <criterion/criterion.h>
#include <errno.h>
#include <unistd.h>

#include "api.h"
#include "arbcase.h"

static const char *state_of(struct shmstore *s, struct shmstore_arb_context *c)
{
	static struct shmstore_arb_info info;

	cr_assert_eq(shmstore_arb_state(s, c, &info), 0);
	return info.state;
}

Test(arb_context, no_daemon_is_not_supported)
{
	struct shmstore_arb_reservation r = {.bytes = 1};
	struct shmstore_arb_pool_info info;
	uint32_t id = 7;

	fake_nowhere();
	struct shmstore *s = scratch_store("a");
	cr_assert_eq(shmstore_arb_available(s), -ENOTSUP);
	cr_assert_eq(shmstore_arb_task_begin(s, NULL, &id), -ENOTSUP);
	cr_assert_eq(shmstore_arb_pool_create(s, "p", 4096, 0, &id), -ENOTSUP);
	cr_assert_eq(shmstore_arb_bind(s, NULL, 1), -ENOTSUP);
	cr_assert_eq(shmstore_arb_reserve(s, SHMSTORE_ARB_PARTITION, 1, NULL, &r), -ENOTSUP);
	cr_assert_eq(shmstore_arb_pool_info(s, SHMSTORE_ARB_PARTITION, &info), -ENOTSUP);
	cr_assert_eq(shmstore_arb_set_upcalls(s, &(struct shmstore_arb_upcalls){0}), -ENOTSUP);
	cr_assert_eq(id, 7);
	cr_assert_eq(shmstore_close(s), 0);
}

Test(arb_context, switched_off_is_not_supported)
{
	struct shmstore_partition *p = scratch_partition();
	struct fakearb *a = fakearb_start(p, ARB_MIB, 0);
	struct shmstore *s = arbcase_store(p, "a", SHMSTORE_OPEN_ARBITRATE);
	uint32_t task;

	a->off = true;
	cr_assert_eq(shmstore_arb_available(s), -ENOTSUP);
	cr_assert_eq(shmstore_arb_task_begin(s, NULL, &task), -ENOTSUP);
	cr_assert_eq(put_pattern(s, "k", 100000, 1, 0), 0);
	cr_assert_eq(shmstore_close(s), 0);
	fakearb_stop(a);
	shmstore_partition_unref(p);
}

Test(arb_context, options_are_checked)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore_arb_task_options t = SHMSTORE_ARB_TASK_OPTIONS_INIT;
	struct arbcase c = arbcase_begin(ARB_MIB, 0, 0);
	struct shmstore_arb_reservation r;
	struct shmstore_arb_how how = {.flags = 1u << 7};
	struct shmstore *s;
	uint32_t task;

	o.flags = SHMSTORE_OPEN_READONLY | SHMSTORE_OPEN_ARBITRATE;
	cr_assert_eq(shmstore_open(c.p, "a", &o, &s), -EINVAL);
	t.size = 8;
	cr_assert_eq(shmstore_arb_task_begin(c.s, &t, &task), -EINVAL);
	cr_assert_eq(shmstore_arb_task_begin(NULL, NULL, &task), -EINVAL);
	cr_assert_eq(shmstore_arb_bind(c.s, NULL, 0), -EINVAL);
	cr_assert_eq(shmstore_arb_reserve(c.s, 0, 1, NULL, &r), -EINVAL);
	cr_assert_eq(shmstore_arb_reserve(c.s, 1, 1, &how, &r), -EINVAL);
	how.flags = SHMSTORE_ARB_ASYNC;
	cr_assert_eq(shmstore_arb_reserve(c.s, 1, 1, &how, &r), -EINVAL,
		     "a thread's own context waits in the call");
	cr_assert_eq(shmstore_arb_reserve(c.s, 99, 1, NULL, &r), -EINVAL, "there is no such pool");
	cr_assert_eq(shmstore_arb_pool_resize(c.s, SHMSTORE_ARB_PARTITION, 1), -EINVAL);
	cr_assert_eq(shmstore_arb_task_end(c.s, 0), -EINVAL);
	arbcase_end(&c);
}

Test(arb_context, task_end_unbinds_and_releases)
{
	struct arbcase c = arbcase_begin(ARB_MIB, 0, 0);
	struct shmstore_arb_reservation r;
	struct shmstore_arb_stats stats;

	cr_assert_str_eq(state_of(c.s, NULL), "RUNNING");
	cr_assert_eq(shmstore_arb_reserve(c.s, SHMSTORE_ARB_PARTITION, 1000, NULL, &r), 0);
	cr_assert_eq(fakearb_used(c.a), 1000);
	cr_assert_eq(shmstore_arb_stats(c.s, c.task, 0, false, &stats), 0);
	cr_assert_eq(stats.current, 1000);
	cr_assert_eq(stats.n_grants, 1);
	cr_assert_eq(shmstore_arb_task_end(c.s, c.task), 0);
	cr_assert(fakearb_uses(c.a, 0));
	cr_assert_str_eq(state_of(c.s, NULL), "UNKNOWN");
	/* A reservation that went with it may be released once more: it means nothing now. */
	cr_assert_eq(shmstore_arb_release(c.s, &r), 0);
	cr_assert_eq(shmstore_arb_release(c.s, &r), 0);
	arbcase_end(&c);
}

Test(arb_context, dedicated_and_helper_are_apart)
{
	struct arbcase c = arbcase_begin(ARB_MIB, 0, 0);
	uint32_t tasks[2] = {c.task, arbcase_task(c.s, 5)};
	struct shmstore_arb_context *x, *other;
	struct shmstore *s = arbcase_store(c.p, "b", 0);

	cr_assert_eq(shmstore_arb_context_new(c.s, &x), 0);
	cr_assert_eq(shmstore_arb_context_new(s, &other), 0);
	cr_assert_eq(shmstore_arb_bind(c.s, other, c.task), -EINVAL, "another store's");
	cr_assert_eq(shmstore_arb_bind_helper(c.s, x, tasks, 2, false), 0);
	cr_assert_eq(shmstore_arb_bind(c.s, x, c.task), -EINVAL);
	cr_assert_eq(shmstore_arb_wait_begin(c.s, x, SHMSTORE_ARB_WAIT_EXTERNAL, 0), -EINVAL);
	cr_assert_eq(shmstore_arb_bind_helper(c.s, NULL, tasks, 2, false), -EINVAL);
	cr_assert_eq(shmstore_arb_unbind(c.s, x, tasks, 1), 0);
	cr_assert_str_eq(state_of(c.s, x), "RUNNING");
	cr_assert_eq(shmstore_arb_unbind(c.s, x, tasks + 1, 1), 0);
	cr_assert_str_eq(state_of(c.s, x), "UNKNOWN");
	cr_assert_eq(shmstore_arb_unbind(c.s, x, NULL, 0), 0, "extra ones are nothing");
	cr_assert_eq(shmstore_arb_bind(c.s, x, tasks[1]), 0, "not bound, it may become the other");
	cr_assert_eq(shmstore_arb_bind(c.s, x, tasks[0]), 0, "it moves");
	cr_assert_null(shmstore_arb_context_free(x));
	cr_assert_null(shmstore_arb_context_free(NULL));
	cr_assert_eq(shmstore_close(s), 0);
	arbcase_end(&c);
}

static void *bind_and_go(void *arg)
{
	struct arbcase *c = arg;
	struct shmstore_arb_context *none = NULL;

	ENSURE(shmstore_arb_bind(c->s, none, c->task) == 0);
	return NULL;
}

static bool unbound(void *arg)
{
	return atomic_load(&((struct fakearb *)arg)->n_ops[WIRE_ARB_UNBIND]) == 1;
}

Test(arb_context, thread_that_ends_is_unbound)
{
	struct arbcase c = arbcase_begin(ARB_MIB, 0, 0);
	pthread_t thread;

	ENSURE(pthread_create(&thread, NULL, bind_and_go, &c) == 0);
	pthread_join(thread, NULL);
	cr_assert(wait_until(unbound, c.a, 10000));
	arbcase_end(&c);
}

static pthread_barrier_t barrier;

static void *outlive(void *arg)
{
	bind_and_go(arg);
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier); /* the store has closed */
	return NULL;
}

Test(arb_context, thread_may_outlive_the_store)
{
	struct arbcase c = arbcase_begin(ARB_MIB, 0, 0);
	struct shmstore *s;
	pthread_t thread;

	pthread_barrier_init(&barrier, NULL, 2);
	ENSURE(pthread_create(&thread, NULL, outlive, &c) == 0);
	pthread_barrier_wait(&barrier);
	s = c.s;
	cr_assert_eq(shmstore_close(s), 0);
	pthread_barrier_wait(&barrier);
	pthread_join(thread, NULL);
	/* And a store in the place of the old one is another one. */
	c.s = arbcase_store(c.p, "a", 0);
	cr_assert_str_eq(state_of(c.s, NULL), "UNKNOWN");
	arbcase_end(&c);
}

Test(arb_context, a_thread_uses_anothers_context)
{
	struct arbcase c = arbcase_begin(ARB_MIB, 0, SHMSTORE_OPEN_ARBITRATE);
	struct shmstore_arb_reservation r;
	struct shmstore_arb_context *x;
	uint32_t task = arbcase_task(c.s, 5);
	struct shmstore_arb_stats stats;

	cr_assert_eq(shmstore_arb_context_new(c.s, &x), 0);
	cr_assert_eq(shmstore_arb_bind(c.s, x, task), 0);
	cr_assert_eq(shmstore_arb_use(c.s, x), 0);
	cr_assert_eq(shmstore_arb_reserve(c.s, SHMSTORE_ARB_PARTITION, 1000, NULL, &r), 0);
	cr_assert_eq(r.context, shmstore_arb_context_id(x));
	cr_assert_eq(shmstore_arb_stats(c.s, task, 0, false, &stats), 0);
	cr_assert_eq(stats.current, 1000);
	shmstore_arb_context_free(x);
	cr_assert_str_eq(state_of(c.s, NULL), "RUNNING", "its own again");
	cr_assert_eq(shmstore_arb_release(c.s, &r), 0);
	arbcase_end(&c);
}

Test(arb_context, daemons_end_is_told_and_overcome)
{
	struct arbcase c = arbcase_begin(ARB_MIB, 0, SHMSTORE_OPEN_ARBITRATE);
	struct shmstore_arb_reservation r, other;
	uint32_t pool, task = c.task;
	struct arbwaiter w;

	cr_assert_eq(shmstore_arb_pool_create(c.s, "own", 1000, 0, &pool), 0);
	cr_assert_eq(shmstore_arb_reserve(c.s, SHMSTORE_ARB_PARTITION, ARB_MIB, NULL, &r), 0);
	arbwaiter_start(&w, c.s, arbcase_task(c.s, 5), 1000, 0);
	cr_assert(fakearb_waits(c.a, 1));
	fakearb_stop(c.a);
	cr_assert_eq(arbwaiter_end(&w, false), SHMSTORE_ARB_DOWN);
	cr_assert_eq(shmstore_arb_reserve(c.s, SHMSTORE_ARB_PARTITION, 1, NULL, &other),
		     SHMSTORE_ARB_DOWN);
	cr_assert(strstr(shmstore_arb_why(), "bind"), "%s", shmstore_arb_why());
	cr_assert_eq(put_pattern(c.s, "k", 100000, 1, 0), 0, "as if there were none");
	c.a = fakearb_start(c.p, ARB_MIB, 0);
	shmstore_close(c.s);
	c.s = arbcase_store(c.p, "a", SHMSTORE_OPEN_ARBITRATE);
	cr_assert_eq(shmstore_arb_reserve(c.s, SHMSTORE_ARB_PARTITION, 1, NULL, &other), 0);
	cr_assert_eq(shmstore_arb_release(c.s, &other), 0);
	(void)task;
	(void)pool;
	arbcase_end(&c);
}

static bool is_there(void *arg)
{
	return shmstore_arb_available(arg) == 0;
}

Test(arb_context, what_an_earlier_daemon_knew_is_down)
{
	struct arbcase c = arbcase_begin(ARB_MIB, 0, SHMSTORE_OPEN_ARBITRATE);
	struct shmstore_arb_reservation r;
	uint32_t pool, task;

	cr_assert_eq(shmstore_arb_pool_create(c.s, "own", 1000, 0, &pool), 0);
	cr_assert_eq(shmstore_arb_reserve(c.s, SHMSTORE_ARB_PARTITION, 1000, NULL, &r), 0);
	fakearb_stop(c.a);
	c.a = fakearb_start(c.p, ARB_MIB, 0);
	cr_assert(wait_until(is_there, c.s, 15000));
	cr_assert_eq(shmstore_arb_bind(c.s, NULL, c.task), SHMSTORE_ARB_DOWN);
	cr_assert_eq(shmstore_arb_pool_resize(c.s, pool, 1), SHMSTORE_ARB_DOWN);
	cr_assert_eq(shmstore_arb_task_end(c.s, c.task), 0, "it did");
	cr_assert_eq(shmstore_arb_release(c.s, &r), 0);
	cr_assert_eq(fakearb_used(c.a), 0);
	task = arbcase_task(c.s, 1);
	cr_assert_neq(task, c.task);
	cr_assert_eq(shmstore_arb_bind(c.s, NULL, task), 0);
	cr_assert_eq(shmstore_arb_reserve(c.s, SHMSTORE_ARB_PARTITION, 1000, NULL, &r), 0);
	cr_assert_eq(fakearb_used(c.a), 1000);
	arbcase_end(&c);
}

static int in_the_child(void *arg)
{
	struct arbcase *c = arg;
	struct shmstore_arb_reservation r;
	uint32_t id;

	ENSURE(shmstore_arb_reserve(c->s, SHMSTORE_ARB_PARTITION, 1, NULL, &r) == -EPERM);
	ENSURE(shmstore_arb_task_begin(c->s, NULL, &id) == -EPERM);
	ENSURE(shmstore_arb_fd(c->s) == -EPERM);
	ENSURE(shmstore_close(c->s) == -EPERM);
	return 0;
}

Test(arb_context, forked_child_has_none)
{
	struct arbcase c = arbcase_begin(ARB_MIB, 0, SHMSTORE_OPEN_ARBITRATE);
	struct shmstore_arb_reservation r;

	cr_assert_geq(shmstore_arb_fd(c.s), 0);
	cr_assert_eq(in_child(in_the_child, &c), 0);
	cr_assert_eq(shmstore_arb_reserve(c.s, SHMSTORE_ARB_PARTITION, 1000, NULL, &r), 0);
	cr_assert_eq(fakearb_used(c.a), 1000);
	arbcase_end(&c);
}
