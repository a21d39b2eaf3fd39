/* SPDX-License-Identifier: Apache-2.0 */
/* simscanner.h: of the scanner in virtual time, what its simulation tells it; else scanner.h. */
#ifndef SIM_SIMSCANNER_H
#define SIM_SIMSCANNER_H

struct twister;

void simscanner_begin(struct twister *random);

#endif
