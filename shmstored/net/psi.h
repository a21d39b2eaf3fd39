/* SPDX-License-Identifier: Apache-2.0 */
/* psi.h: the kernel's word that tasks wait for memory
 * (Documentation/accounting/psi.rst), as events. */
#ifndef PSI_H
#define PSI_H

struct host;
struct psi;

/*
 * Asks the kernel to tell when tasks waited for memory for config's psi_stall_us within
 * psi_window_us: of the daemon's cgroup where that has a memory.pressure, else of the host. root:
 * "" but in tests. 0 with *ret NULL: switched off; -errno: not to be had here.
 */
int psi_new(struct host *h, const char *root, struct psi **ret);
struct psi *psi_free(struct psi *p);

#endif
