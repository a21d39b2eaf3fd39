/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tls.h: a thread's own variables that are a word each and are looked at by every call: they lie at a fixed distance from the thread pointer, also
 * of a library that dlopen() loads (a Python package), for which the C library keeps some room. Others are looked up by a call.
 */
#ifndef SHMS_TLS_H
#define SHMS_TLS_H

#define SHMS_TLS_WORD _Thread_local __attribute__((tls_model("initial-exec")))

#endif
