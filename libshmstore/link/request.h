/* SPDX-License-Identifier: Apache-2.0 */
/*
 * request.h: requests on the connection, and their replies: at once, late, or when somebody looks.
 *
 * No lock of the store may be held over shms_attach_call() and shms_request_ask(). Memory of a
 * request under way is the caller's; it stays where it is until the request has ended or was
 * withdrawn.
 */
#ifndef SHMS_REQUEST_H
#define SHMS_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire.h"

struct shms_attach;

struct shms_call {
	uint16_t type;    /* WIRE_* of a request */
	uint16_t answer;  /* of its answer; WIRE_REFUSED is one too */
	const void *body; /* struct wire_<name> */
	const void *tail;
	size_t tail_size;
	/* for requests that may wait in the daemon: beyond the 1 s of any; a CANCEL follows it */
	uint64_t timeout_ms;
	uint64_t generation; /* only on that registration (shms_attach.generation); 0 = on any */
};

/* body.refused.error is an -errno; tail ends in a NUL. */
struct shms_reply {
	uint16_t type;
	union {
		struct wire_granted granted;
		struct wire_refused refused;
		struct wire_done done;
		struct wire_arbed arbed;
		struct wire_task_admitted admitted;
		unsigned char bytes[64];
	} body;
	uint32_t tail_size;
	char tail[WIRE_TEXT_MAX + 1];
};

/* Sent, and not answered. All but reply, ended and arg is this module's. */
struct shms_request {
	struct shms_request *next;
	uint64_t serial;
	uint16_t answer;
	bool done;
	int error; /* 0: *reply is there; -ENOTCONN: the connection ended before */
	struct shms_reply *reply;
	/* Called where it ends, by whichever thread read that, with the connection's lock held:
	 * takes no lock that is held over calls of this module. NULL: somebody waits. */
	void (*ended)(struct shms_request *q);
	void *arg;
};

/* One request and its reply. 0, or -ENOTCONN: alone, or the daemon does not answer. */
int shms_attach_call(struct shms_attach *a, const struct shms_call *call, struct shms_reply *ret);

/* The error of a REFUSED reply, whose sentence becomes the error's detail; 0 of any other. */
int shms_reply_error(const struct shms_reply *reply);
/* The error of a request that ended with r, and else of its reply. With -ENOTCONN the call needed
 * a daemon: shms_attach_absent() says why there is none, and then. */
int shms_request_error(struct shms_attach *a, int r, const struct shms_reply *reply,
		       const char *then);

/*
 * Sends without waiting for a reply. q: where that will be told, however late; NULL: none is
 * wanted. Also to a daemon that does not answer just now: a release must not be lost; who reads
 * nothing for a second is hung up on. 0, -ENOTCONN.
 */
int shms_request_post(struct shms_attach *a, const struct shms_call *call, struct shms_request *q);
/* Posts for a call that can do nothing without a daemon: one that is slow to greet is waited for
 * longer, once, unless the call goes to one registration only. 0, -ENOTCONN. */
int shms_request_begin(struct shms_attach *a, const struct shms_call *call, struct shms_request *q);
/*
 * Begins the request, and waits for its end, which the daemon may withhold as long as it likes: as
 * long as it lives. That is looked at: after seconds without a word it is asked, and who does not
 * answer that for long is hung up on.
 */
int shms_request_ask(struct shms_attach *a, const struct shms_call *call, struct shms_reply *ret);
/* Waits for the end of q, until then at most (CLOCK_MONOTONIC). True: it has ended, and q->error
 * says how. */
bool shms_request_wait_until(struct shms_attach *a, struct shms_request *q, uint64_t until_ns);
/* q's reply is not wanted any more. Afterwards it has ended, or never will. */
void shms_request_withdraw(struct shms_attach *a, struct shms_request *q);
/* The program may end a call that waits (shmstore_on_wait()): asks it. No lock is held: what it
 * asks may wait for a thread that is in a call. */
bool shms_interrupted(void);
#define SHMS_INTERRUPT_NS UINT64_C(100000000) /* between two questions */
/* Takes what has come, without waiting. */
void shms_request_look(struct shms_attach *a);
/* A descriptor that is readable when shms_request_look() has something to do, whatever the
 * connection is; the same one always. Or -errno. */
int shms_request_fd(struct shms_attach *a);

#endif
