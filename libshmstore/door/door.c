/* SPDX-License-Identifier: Apache-2.0 */
/*
 * door.c: the public functions that can fail, as their callers see them. Each forgets what the
 * thread's last call said about its failure, asks whether the store is open and may be changed,
 * calls what the library calls by the same name (door.h), and sees to it that a failure has a
 * sentence: the one that was said near the cause (shms_detail()), or else one of what is known
 * here, the call, the object and the code. A sentence of something that was tried on the way and
 * did not end the call is forgotten.
 *
 * The way through it costs a store to the thread's own memory before and after the call. Calls from
 * inside the library, and those of its own threads, go past it: they cannot take away the sentence
 * of the call that made them. The caller's own functions, called back, do go through it.
 *
 * A function that fills a structure is shmstore_<name>_sized(): it comes with the caller's size of
 * it, which the headers' macro shmstore_<name>() adds. Older programs get their members, newer ones
 * zeros for those that we lack. Rejected: a size as the structure's first member, that callers set
 * (one that does not, passes as the size what was on its stack, and that much is written); versions
 * of symbols (not for a static library, nor for dlsym(), and a program does not start with an older
 * library); a new name for each size.
 */
#include <errno.h>
#include <shmstore/actor.h>
#include <shmstore/arbiter.h>
#include <shmstore/daemon.h>
#include <shmstore/inspect.h>
#include <shmstore/profile.h>
#include <shmstore/shmstore.h>
#include <shmstore/stage.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "cleanup.h"
#include "detail.h"
#include "handle.h"
#include "name.h"
#include "partition.h"

/* The subject of a failed call. */
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
			return shms_detail(error, NULL,
					   "%s: no shmstored serves the store, or its arbiter is "
					   "off: start it with arbiter = on",
					   a->path);
		break;
	case -EBADMSG:
		if (a->name[0] && a->path[0])
			return shms_detail(error, NULL, "%s in %s is damaged, or no object of ours",
					   a->name, a->path);
		break;
	case -EPERM:
		return shms_detail(error, NULL,
				   "%s%s%s%s%s: the kernel does not let user %u do that", a->call,
				   dash, a->name, in, a->path, (unsigned)geteuid());
	case -ENOENT:
		if (a->name[0] && a->path[0])
			return shms_detail(error, NULL, "no object has the key %s in %s", a->name,
					   a->path);
		break;
	case -EEXIST:
		if (a->name[0] && a->path[0])
			return shms_detail(error, NULL, "the key is held: %s is in %s already",
					   a->name, a->path);
		break;
	case -EMFILE:
		return shms_detail(error, NULL,
				   "%s%s%s%s%s: the process (ulimit -n) or the host has no file "
				   "descriptor left",
				   a->call, dash, a->name, in, a->path);
	case -ENOMEM:
		return shms_detail(error, NULL,
				   "%s%s%s%s%s: the process has no memory left, or no mapping "
				   "(vm.max_map_count)",
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

static int failed_partition(int error, const char *call, const struct shmstore_partition *p,
			    const char *name)
{
	return tell(error, &(struct subject){call, p && p->path ? p->path : "", name ? name : ""});
}

static int failed_store(int error, const char *call, const struct shmstore *s, const void *key,
			size_t key_size)
{
	struct subject a = {call, "", ""};
	char name[SHMS_NAME_SIZE];

	if (s && shms_handle(s)->magic == SHMS_STORE_MAGIC && s->path)
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

/*
 * The properties of each subject, a row for each: PART(cancel, usable, failed, kept).
 *
 * cancel: no thread ends within a call, but one that awaits the daemon's next event, holding
 * nothing, may. Calls on a lease take ns: only arbitrate.c, where it asks the daemon, holds
 * cancellation off.
 * usable: is the store open, in this process, and may it be changed where the call does that?
 * failed: tells of a failure.
 * kept: a success leaves no sentence, except where single results of the call may be failures.
 */
#define READABLE           shms_store_usable(s, false)
#define USABLE             shms_store_usable(s, true)
#define OF_CALL(PART)      PART(SHMS_NO_CANCEL, 0, failed_call(error, call), 0)
#define OF_PATH(PART)      PART(SHMS_NO_CANCEL, 0, failed_path(error, call, path), 0)
#define OF_PARTITION(PART) PART(SHMS_NO_CANCEL, 0, failed_partition(error, call, p, NULL), 0)
#define OF_NAMED(PART)     PART(SHMS_NO_CANCEL, 0, failed_partition(error, call, p, name), 0)
#define OF_CLIENT(PART)    PART((void)0, 0, failed_client(error, call, c), 0)
#define OF_STORE(PART)     PART(SHMS_NO_CANCEL, USABLE, failed_store(error, call, s, NULL, 0), 0)
#define OF_LEASED(PART)    PART((void)0, USABLE, failed_store(error, call, s, NULL, 0), 0)
#define OF_READER(PART)    PART(SHMS_NO_CANCEL, READABLE, failed_store(error, call, s, NULL, 0), 0)
#define OF_RESULTS(PART) \
	PART(SHMS_NO_CANCEL, READABLE, failed_store(error, call, s, NULL, 0), shms_detail_told)
#define OF_KEY(PART) PART(SHMS_NO_CANCEL, USABLE, failed_store(error, call, s, key, key_size), 0)
#define OF_READ_KEY(PART) \
	PART(SHMS_NO_CANCEL, READABLE, failed_store(error, call, s, key, key_size), 0)
#define CANCEL(cancel, usable, failed, kept) cancel
#define ASK(cancel, usable, failed, kept)    usable
#define TELL(cancel, usable, failed, kept)   failed
#define KEEP(cancel, usable, failed, kept)   kept

/* Puts our structure in place of the caller's, of another size. Unwritten members keep theirs. */
static void stand_in(void *own, size_t own_size, const void *callers, size_t size)
{
	memset(own, 0, own_size);
	memcpy(own, callers, size < own_size ? size : own_size);
}

static void hand_back(void *callers, size_t size, const void *own, size_t own_size, bool written)
{
	memcpy(callers, own, size < own_size ? size : own_size);
	if (written && size > own_size)
		memset((char *)callers + own_size, 0, size - own_size);
}

/* It points into itself. */
static void move_path(struct shmstore_tier_info *callers, size_t size,
		      const struct shmstore_tier_info *own)
{
	if (size >= offsetof(struct shmstore_tier_info, config_path) + sizeof(own->config_path) &&
	    own->config.path == own->config_path)
		callers->config.path = callers->config_path;
	else if (size >= offsetof(struct shmstore_tier_info, config) + sizeof(own->config))
		callers->config.path = "";
}

#define WRITTEN_SUCCESS   (error >= 0)
#define WRITTEN_ALWAYS    true
#define WRITTEN_TIER_INFO (error >= 0)
#define MOVED_SUCCESS     (void)0
#define MOVED_ALWAYS      (void)0
#define MOVED_TIER_INFO   error == 0 ? move_path(callers, ret_size, &own) : (void)0

/* The way through: inner is the call of what the library calls by the same name. */
#define PASS(subject, name, inner)                             \
	{                                                      \
		static const char call[] = "shmstore_" #name;  \
		OF_##subject(CANCEL);                          \
		int error;                                     \
                                                               \
		shms_detail_told = 0;                          \
		error = OF_##subject(ASK);                     \
		if (error == 0)                                \
			error = inner;                         \
		if (error == 0)                                \
			shms_detail_told = OF_##subject(KEEP); \
		else if (error < 0 && !shms_detail_is(error))  \
			(void)OF_##subject(TELL);              \
		if (error < 0)                                 \
			shms_detail_refused(error);            \
		return error;                                  \
	}

#define DOOR(subject, name, parameters, arguments) \
	int shms_in_##name parameters;             \
	int shmstore_##name parameters PASS(subject, name, shms_in_##name arguments)

#define AND_SIZE(...)  (__VA_ARGS__, size_t ret_size)
#define PASS_SIZE(...) (__VA_ARGS__, ret_size)

#define FILLS(subject, name, type, when, parameters, arguments)                  \
	int shms_in_##name parameters;                                           \
	static int fill_##name AND_SIZE parameters                               \
	{                                                                        \
		struct type own, *const callers = ret;                           \
		int error;                                                       \
                                                                                 \
		if (!callers || ret_size == sizeof(own))                         \
			return shms_in_##name arguments;                         \
		stand_in(&own, sizeof(own), callers, ret_size);                  \
		ret = &own;                                                      \
		error = shms_in_##name arguments;                                \
		hand_back(callers, ret_size, &own, sizeof(own), WRITTEN_##when); \
		MOVED_##when;                                                    \
		return error;                                                    \
	}                                                                        \
	int shmstore_##name##_sized AND_SIZE parameters PASS(subject, name,      \
							     fill_##name PASS_SIZE arguments)

#include "door.def"
