/* SPDX-License-Identifier: Apache-2.0 */
/*
 * door.c: the public functions that can fail, as their callers see them. Each forgets what the thread's last call said about its failure, calls
 * what the library calls by the same name (door.h), and sees to it that a failure has a sentence: the one that was said near the cause
 * (shms_detail()), or else one of what is known here, the call, the object and the code. A sentence of something that was tried on the
 * way and did not end the call is forgotten.
 *
 * The way through it costs a store to the thread's own memory before and after the call. Calls from inside the library, and those of its own threads, go past it:
 * they cannot take away the sentence of the call that made them. The caller's own functions, called back, do go through it.
 */
#include <errno.h>
#include <shmstore/arbiter.h>
#include <shmstore/daemon.h>
#include <shmstore/inspect.h>
#include <shmstore/shmstore.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cancel.h"
#include "detail.h"
#include "handle.h"
#include "name.h"
#include "partition.h"

/* What a failed call was about. */
struct subject {
	const char *call;
	const char *path; /* of the partition or the store; "" = not known */
	const char *name; /* of the object or the store; "" = none */
};

/* The sentence where nobody nearer to the cause said one. */
static int tell(int error, const struct subject *a)
{
	const char *in = a->path[0] ? " in " : "", *dash = a->name[0] ? " " : "";

	switch (error) {
	case -ENOTSUP:
		if (strncmp(a->call, "shmstore_arb_", strlen("shmstore_arb_")) == 0)
			return shms_detail(
				error, NULL,
				"%s: no shmstored serves the store, or its arbiter is off: start it with arbiter = on",
				a->path);
		break;
	case -EBADMSG:
		if (a->name[0] && a->path[0])
			return shms_detail(error, NULL, "%s in %s is damaged, or no object of ours", a->name, a->path);
		break;
	case -EPERM:
		return shms_detail(error, NULL, "%s%s%s%s%s: the kernel does not let user %u do that", a->call, dash,
				   a->name, in, a->path, (unsigned)geteuid());
	case -ENOENT:
		if (a->name[0] && a->path[0])
			return shms_detail(error, NULL, "no object has the key %s in %s", a->name, a->path);
		break;
	case -EEXIST:
		if (a->name[0] && a->path[0])
			return shms_detail(error, NULL, "the key is held: %s is in %s already", a->name, a->path);
		break;
	case -EMFILE:
		return shms_detail(error, NULL,
				   "%s%s%s%s%s: the process (ulimit -n) or the host has no file descriptor left",
				   a->call, dash, a->name, in, a->path);
	case -ENOMEM:
		return shms_detail(error, NULL,
				   "%s%s%s%s%s: the process has no memory left, or no mapping (vm.max_map_count)",
				   a->call, dash, a->name, in, a->path);
	default:
		break;
	}
	return shms_detail(error, NULL, "%s%s%s%s%s: %s", a->call, dash, a->name, in, a->path,
			   shmstore_strerror(error));
}

static int failed_call(int error, const char *call)
{
	return tell(error, &(struct subject){call, "", ""});
}

static int failed_path(int error, const char *call, const char *path)
{
	return tell(error, &(struct subject){call, path ? path : "", ""});
}

static int failed_partition(int error, const char *call, const struct shmstore_partition *p, const char *name)
{
	return tell(error, &(struct subject){call, p && p->path ? p->path : "", name ? name : ""});
}

static int failed_store(int error, const char *call, const struct shmstore *s, const void *key, size_t key_size)
{
	struct subject a = {call, "", ""};
	char name[SHMS_NAME_SIZE];

	if (s && s->magic == SHMS_STORE_MAGIC && s->path)
		a.path = s->path;
	if (key && key_size <= SHMSTORE_KEY_MAX) {
		shms_name_encode(key, key_size, name);
		a.name = name;
	}
	return tell(error, &a);
}

static int failed_client(int error, const char *call, const struct shmstore_client *c)
{
	if (!c || !*shmstore_client_reason(c))
		return failed_call(error, call);
	return shms_detail(error, shmstore_client_path(c), "%s: %s", shmstore_client_path(c),
			   shmstore_client_reason(c));
}

/* What a success leaves of a sentence: none, but where single results of a call that is successful itself may be failures. */
#define KEPT_CALL      0
#define KEPT_PATH      0
#define KEPT_PARTITION 0
#define KEPT_NAMED     0
#define KEPT_STORE     0
#define KEPT_KEY       0
#define KEPT_CLIENT    0
#define KEPT_RESULTS   (*told)

#define FAILED_CALL(name)      failed_call(error, name)
#define FAILED_PATH(name)      failed_path(error, name, path)
#define FAILED_PARTITION(name) failed_partition(error, name, p, NULL)
#define FAILED_NAMED(name_)    failed_partition(error, name_, p, name)
#define FAILED_STORE(name)     failed_store(error, name, s, NULL, 0)
#define FAILED_RESULTS(name)   FAILED_STORE(name)
#define FAILED_KEY(name)       failed_store(error, name, s, key, key_size)
#define FAILED_CLIENT(name)    failed_client(error, name, c)

/* No thread ends within a call; but one that waits for the daemon's next event, with nothing in its hands that others need, may. */
#define CANCEL_CALL      SHMS_NO_CANCEL
#define CANCEL_PATH      SHMS_NO_CANCEL
#define CANCEL_PARTITION SHMS_NO_CANCEL
#define CANCEL_NAMED     SHMS_NO_CANCEL
#define CANCEL_STORE     SHMS_NO_CANCEL
#define CANCEL_KEY       SHMS_NO_CANCEL
#define CANCEL_RESULTS   SHMS_NO_CANCEL
#define CANCEL_CLIENT    (void)0

#define DOOR(subject, name, parameters, arguments)                 \
	int shms_in_##name parameters;                             \
	int shmstore_##name parameters                             \
	{                                                          \
		CANCEL_##subject;                                  \
		int *told = shms_detail_told();                    \
		int error;                                         \
                                                                   \
		*told = 0;                                         \
		error = shms_in_##name arguments;                  \
		if (error == 0)                                    \
			*told = KEPT_##subject;                    \
		else if (error < 0 && !shms_detail_is(error))      \
			(void)FAILED_##subject("shmstore_" #name); \
		return error;                                      \
	}
#include "door.def"
