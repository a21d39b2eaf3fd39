/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.h: /etc/shmstore/shmstored.conf and its drop-ins (files in shmstored.conf.d), read with
 * libConfuse. Every key is in shmstored.conf(5). A configuration is immutable once read.
 */
#ifndef CONFIG_H
#define CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "ckptplan.h"
#include "profile.h"
#include "stagebook.h"

#define CONFIG_FILE "/etc/shmstore/shmstored.conf"

#define CONFIG_LIMIT_DEFAULT UINT64_MAX /* as QUOTA_DEFAULT: not said, so as "*" says; 0: none */

struct config_limit {
	uint32_t kind; /* enum wire_limit */
	char *id;      /* as quota_limit() */
	uint64_t hard, soft;
};

/* The disk tier (shmstore/tier.h), as the daemon writes it into the partition. */
struct config_disk {
	char *path; /* NULL: not said, what the partition has stays; "none": it is to have none */
	uint64_t max, min_free; /* bytes; max 0: no limit */
	uint32_t level;
	bool fsync;
	uint32_t high, low; /* percent */
	/* ours: tier files are read so often (0: never), so many bytes a second */
	uint64_t scrub_ns, scrub_rate;
};

/* How puts wait that do not fit: in the order of their limits (quota.h), or by createqueue.h. */
enum config_queue {
	CONFIG_QUEUE_LIMITS,
	CONFIG_QUEUE_HOST,
	CONFIG_QUEUE_FIRST
};

struct config_partition {
	char *path;
	bool create, shared;
	int queue;               /* enum config_queue */
	uint64_t queue_grace_ns; /* 0: none ends before its own deadline */
	uint32_t queue_per_store, queue_max_bypass;
	struct config_limit *limits;
	size_t n_limits;
	/* bytes, or parts per million of the size where below 1000001 */
	uint64_t watermark_low, watermark_high;
	uint64_t survey_interval_ns;
	uint64_t ghost_age_ns; /* EVENT_GHOST_OLD from this age on */
	struct config_disk disk;
};

/* The memory arbiter, of every partition. */
struct config_arbiter {
	bool enabled;
	/* bytes that it never gives, or parts per million of the whole up to 1000000 */
	uint64_t headroom;
	uint64_t wait_ns; /* nobody waits longer */
	uint64_t tick_ns; /* between looks for who is stuck */
	uint64_t call_ns; /* that a client has to make room when asked to */
	/* a lease's bytes; 0: none. The largest reservation that one serves */
	uint64_t lease, lease_small;
	uint32_t max_bypass, suspect_ticks, split_ticks, retry_limit; /* enum arb_knob */
	bool early_detect;
	uint32_t max_contexts, max_tasks, max_reservations, max_pools; /* of one store */
};

/* Memory pressure on the whole host. Watermarks: bytes, or parts per million of the host's memory
 * up to 1000000; 0: by the rule (gate.h). */
struct config_pressure {
	bool enabled;
	uint64_t interval_ns; /* between two looks */
	/* 0: what the host and its cgroups say; else this, of which processes and
	 * partitions use what they have */
	uint64_t host_total;
	uint64_t growth_rate;     /* bytes a second that are touched for the first time, at most */
	uint64_t kill, gate, low; /* watermarks */
	bool swap;
	uint32_t window, hold, ramp, ramp_max; /* struct gate_config */
	char *proc, *cgroup;                   /* NULL: /proc, /sys/fs/cgroup */
	int preempt;                           /* 0: nobody; else 1 + enum policy_kind */
	uint64_t grace_ns, term_ns; /* from the notice to SIGTERM, from that to SIGKILL */
};

/* Profiles of the memory that every user's tasks used: docs/governor.md. */
struct config_profile {
	struct profile_choice strategy; /* NONE: nothing is collected, and nothing is used */
	char *directory;      /* of the files, one for each user; "none": nothing is kept */
	uint64_t fallback;    /* bytes: the estimate of a task of which nothing is known */
	uint64_t interval_ns; /* between looks at the processes that run tasks */
	uint64_t save_ns;     /* between looks whether something is to be written */
	uint32_t max_kinds;   /* that are kept for one user */
};

/* How a worker's memory is divided for the stages of a job: docs/governor.md. */
struct config_stage {
	struct stage_config rules; /* cap_mib: by cap */
	enum stage_conflict conflict;
	uint64_t cap; /* bytes; 0: none */
	/* bytes; 0: by the host, the partition and workers */
	uint64_t base_private, base_shared, total;
	uint32_t slots;
	uint32_t workers; /* that share the host; 0: as many as it has processors */
};

/* How copies of an actor's state are made: of one, or as configured for all. */
struct config_copies {
	bool on;
	struct ckpt_num num;   /* this and the following: struct ckpt_config */
	char *selection;       /* NULL: "resource" */
	int strategy;          /* enum ckpt_strategy */
	uint64_t frequency_ns; /* of copies of one actor */
	uint32_t retry;
	uint64_t reserve;
	bool panic_on_missing;
	struct ckpt_stale stale; /* may one be used when its actor is preempted? */
};

/* Other daemons, and what they and this one do for each other: docs/actors.md. */
struct config_peers {
	char *name; /* NULL: the host's */
	/* an absolute path, or ADDRESS:PORT; NULL: no other daemon connects to this one */
	char *listen;
	char *connect;       /* such addresses with commas between them; NULL: to none */
	char *secret_file;   /* NULL: none, and so no connection between hosts */
	uint64_t timeout_ns; /* one that is silent for so long is down */
	uint64_t sync_ns;    /* between two times that profiles are sent */
	struct config_copies copies;
	uint64_t recover_ns; /* an actor that is nowhere for so long is recovered */
};

/* http.detail = user | full | totals: whose stores an HTTP client sees by name. */
enum config_detail {
	/* those of the local user at the other end of the connection; root sees all */
	CONFIG_DETAIL_USER = 0,
	CONFIG_DETAIL_FULL = 1,   /* all */
	CONFIG_DETAIL_TOTALS = 2, /* none, only sums */
};

struct config {
	char *socket;
	uint32_t socket_mode;
	char *socket_group; /* NULL = as it comes */
	uint32_t max_clients, max_clients_per_user;
	/* also: that a client with answers waiting may take none of them */
	uint64_t hello_timeout_ns;
	uint32_t output_max; /* bytes that may wait for a client to read */
	bool http;
	char *http_address; /* "127.0.0.1" */
	uint16_t http_port; /* 9477 */
	int http_detail;    /* enum config_detail; CONFIG_DETAIL_USER */
	uint64_t credit, credit_idle_ns;
	bool psi;
	uint64_t psi_stall_us, psi_window_us;
	int log_level; /* syslog's */
	struct config_arbiter arbiter;
	struct config_pressure pressure;
	struct config_profile profile;
	struct config_stage stage;
	struct config_peers peers;
	struct config_partition *partitions;
	size_t n_partitions;
	struct rule *rules; /* of handoffs between users: a list */
};

/*
 * Reads file and drop-ins; NULL = CONFIG_FILE where it is there, else the defaults (one
 * partition: the library's default path). -errno; ret_error: "file:line: what, and what to do"
 * (the nearest right key), to be freed.
 */
int config_read(const char *file, struct config **ret, char **ret_error);
/* The bytes of a watermark, which is bytes, or parts per million of the whole. */
static inline uint64_t config_watermark(uint64_t mark, uint64_t whole)
{
	return mark > 1000000 ? mark : (uint64_t)((__uint128_t)whole * mark / 1000000);
}

/* The partition at path; its limit of that kind. NULL: there is none, or no configuration. */
struct config_partition *config_partition_find(const struct config *c, const char *path);
struct config_limit *config_limit_find(const struct config_partition *p, uint32_t kind,
				       const char *id);
/* For the reader: the partition's limit of that kind, made where it is missing; a partition with
 * the defaults. NULL: no memory. */
struct config_limit *config_limit_get(struct config_partition *p, uint32_t kind, const char *id);
struct config_partition *config_partition_add(struct config *c, const char *path);
/* Puts these partitions, with the defaults of each key, in the place of all others. 0, -ENOMEM. */
int config_set_partitions(struct config *c, const char *const *paths, size_t n);
/*
 * Where nothing names the socket: $SHMSTORE_SOCKET, else where stores look for us (wire.h), so that
 * a daemon of one user alone needs no configuration either. 0, -ENOMEM.
 */
int config_default_socket(struct config *c);
struct config *config_free(struct config *c);
/* The uid in digits of a user as people write it: a name, digits or "*". NULL: no such user. The
 * lookup of a name may block for a moment. */
const char *config_user_id(const char *name, char room[16]);
/* Bytes from "64MiB", "1.5G", "50%" (of total; 0: not allowed). -EINVAL. */
int config_parse_size(const char *text, uint64_t total, uint64_t *ret);

#define CONFIG_WHY 256u /* bytes of what is wrong with such words */
/*
 * Words "key=value", with blanks between them, of those keys of the section peers that are about
 * copies: of one actor. Other members are as in from. 0; -EINVAL, with why; -ENOMEM.
 */
int config_copies_read(const char *words, const struct config_copies *from,
		       struct config_copies *ret, char why[CONFIG_WHY]);
void config_copies_clear(struct config_copies *c);

/* Rules: which users may hand objects to which. Pure but for looking users and groups up by name
 * when they are made. */

/* from, to: lists of "user:NAME", "group:NAME", "uid:N", "gid:N", "any". The list begins as NULL.
 * -EINVAL with *ret_bad the word that is wrong; -ENOMEM. */
int rules_add(struct rule **list, const char *name, const char *const *from, size_t n_from,
	      const char *const *to, size_t n_to, const char **ret_bad);
struct rule *rules_free(struct rule *list);
/* Supplementary groups count. ret_name: the rule that allows it; may be NULL. */
bool rules_allow(const struct rule *list, uid_t from, uid_t to, const char **ret_name);

/* For this room only: one key of the configuration: which values it takes, and how one becomes a
 * field of a structure. */
enum configkey_kind {
#define KIND(NAME, form, help) KEY_##NAME,
#include "configkind.def"
#undef KIND
};

struct configkey {
	const char *name;
	size_t offset;        /* of its field */
	const char *standard; /* NULL: the field stays as it is made */
	uint64_t least, most; /* of a number */
	enum configkey_kind kind;
};

/* Describes the kind's values, for an error's text. */
const char *configkey_help(enum configkey_kind kind);
/* 0: the key takes the text; -EINVAL. */
int configkey_check(const struct configkey *k, const char *text);
/* Sets the key's field of the structure at base to a text that
 * configkey_check() took. 0, -ENOMEM. */
int configkey_store(const struct configkey *k, const char *text, void *base);

/* Frees the key's field of the structure at base, where it is a text. */
void configkey_clear(const struct configkey *k, void *base);

/* "250ms", "10s", "5min", "1h"; a bare number is seconds. 0, -EINVAL, as: */
int configkey_duration(const char *text, uint64_t *ret_ns);
int configkey_number(const char *text, int base, uint64_t min, uint64_t max, uint64_t *ret);

/* Of n words the one that somebody may have meant by a word that is not known: which takes the
 * fewest edits from it, where these are at most a third of its length (and two); else NULL. */
const char *nearest(const char *word, const char *const *words, size_t n);

/*
 * Reads file into c: what it names takes the place of what c says. 0, -errno, -EINVAL; ret_error:
 * "file:line: what", to be freed.
 */
int configread_file(struct config *c, const char *file, char **ret_error);
/* The keys of a struct config_partition, or those of a struct config, at base: sets each field to
 * its standard (0, -ENOMEM); frees all texts. */
int configread_standards(bool partition, void *base);
void configread_clear(bool partition, void *base);

#endif
